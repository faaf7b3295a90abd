"""Cython over many modules, for setup.py: what they cimport is read once.

Cython reads all declarations (.pxd) that a module cimports, and what those cimport, anew for each
module. For a hundred modules over a hundred declarations that is more than half of its time. It
cannot keep them from one module to the next, since each module changes them. So this process
reads the declarations, and translates each module in a child of its own, which inherits them by
fork() and changes only its copy. The C++ is the same, apart from the order of functions.

This uses Cython's inner classes. `pyproject.toml` pins the version, and `tests/layout` compares
the result with what Cython makes by itself.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from Cython.Build import Dependencies, cythonize
from Cython.Compiler import Errors, Symtab
from Cython.Compiler.Main import Context, standard_include_path

ONE = Dependencies.cythonize_one
C_FILE, FINGERPRINT, OPTIONS, NAME, CACHE = 1, 2, 4, 7, 10   # of the arguments of cythonize_one


class Used:
    """Replaces Symtab.Entry.used while declarations are read, and notes in which file an inline
    function uses which function."""

    def __init__(self) -> None:
        self.files: list[list[Any]] = [[]]     # those that are being read, the innermost last

    def __get__(self, entry: Any, kind: type) -> Any:
        return self if entry is None else entry.__dict__.get("used", 0)

    def __set__(self, entry: Any, used: Any) -> None:
        entry.__dict__["used"] = used
        if used:
            self.files[-1].append(entry)


class Read(dict[str, Any]):
    """Context.pxds: what was read, by module. Cython puts all of it into the module that it
    translates. items() leaves what this module cimports, directly or not, and records what that
    uses, as if nothing else had been read."""

    def __init__(self) -> None:
        self.uses: dict[str, list[Any]] = {}
        self.module: Any = None

    def items(self) -> Any:
        reached: dict[str, Any] = {}
        following = [self.module()]
        while following:
            scope = following.pop()
            if scope.qualified_name not in reached:
                reached[scope.qualified_name] = scope
                following += scope.cimported_modules
        for name in reached:
            for entry in self.uses.get(name, ()):
                entry.used = 1
        return sorted((name, read) for name, read in super().items()
                      if read[1].qualified_name in reached)


class Declarations(Context):  # type: ignore[misc]  # Cython has no types
    """The declarations that all children share."""

    def read(self, names: list[str]) -> None:
        self.pxds = Read()
        self.used = Symtab.Entry.used = Used()
        try:
            for name in names:
                self.find_module(name)
        finally:
            Symtab.Entry.used = 0
        for entries in self.pxds.uses.values():
            for entry in entries:
                entry.used = 0

    def process_pxd(self, source: Any, scope: Any, name: str) -> Any:
        if not isinstance(Symtab.Entry.used, Used):
            return super().process_pxd(source, scope, name)
        self.used.files.append([])
        read = super().process_pxd(source, scope, name)
        self.pxds.uses[scope.qualified_name] = self.used.files.pop()
        return read


def names_of(jobs: list[Any], roots: dict[str, str]) -> Iterator[str]:
    """The modules whose declarations these jobs need. roots: folder to package. Not those with
    typed memoryviews: what Cython adds for these would go into every module."""
    tree = Dependencies.create_dependency_tree()
    found = {file for job in jobs for file in tree.all_dependencies(job[0])}
    views = {file for file in found if file.endswith(".pxd") and "[:" in Path(file).read_text()}
    files = {Path(file) for file in found if views.isdisjoint(tree.all_dependencies(file))}
    for folder, package in {**roots, standard_include_path: ""}.items():
        for file in files:
            if file.suffix == ".pxd" and file.stem != "__init__" and file.is_relative_to(folder):
                parts = file.relative_to(folder).with_suffix("").parts
                yield ".".join((package, *parts) if package else parts)


def declarations(jobs: list[Any], roots: dict[str, str]) -> Declarations | None:
    """None if there is an error in them, which Cython then reports for each module that meets it,
    or a typed memoryview after all."""
    Errors.init_thread()
    made = Declarations.from_options(jobs[0][OPTIONS])
    with Errors.local_errors(ignore=True) as errors:
        made.read(sorted(names_of(jobs, roots)))
    return None if errors or made.utility_pxds else made


def cached(job: Any) -> bool:
    """Whether Cython's cache has this module as it is now: another checkout has translated it."""
    cache = job[CACHE]
    return bool(cache and job[FINGERPRINT] and cache.lookup_cache(job[C_FILE], job[FINGERPRINT]))


def translate(job: Any) -> None:
    """One module, in a child."""
    if SHARED is not None:
        SHARED.pxds.module = lambda: SHARED.find_module(job[NAME], need_pxd=0)
        Context.from_options = lambda options: SHARED
    try:
        ONE(*job)
    except BaseException:       # Cython leaves a file, which the next run would take for its result
        Path(job[C_FILE]).unlink(missing_ok=True)
        raise


SHARED: Declarations | None = None     # a child finds it here


def translate_all(extensions: list[Any], roots: dict[str, str], processes: int,
                  **options: Any) -> list[Any]:
    """cythonize(), for the modules that have changed."""
    global SHARED
    gc.set_threshold(200_000, 20, 100)     # a tenth of Cython's time; inherited by the children
    jobs: list[Any] = []
    Dependencies.cythonize_one = lambda *job: jobs.append(job)
    try:
        modules: list[Any] = cythonize(extensions, **options)
    finally:
        Dependencies.cythonize_one = ONE
    for job in filter(cached, jobs):
        ONE(*job)
    jobs = [job for job in jobs if not cached(job)]
    if jobs:
        SHARED = declarations(jobs, roots)
        gc.collect()
        gc.freeze()                        # a collection in a child would copy all of it
        context = multiprocessing.get_context("fork")
        with context.Pool(min(processes, len(jobs)), maxtasksperchild=1) as pool:
            for _ in pool.imap_unordered(translate, jobs):
                pass
    return modules
