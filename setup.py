"""Extensions only; every other fact about the project is in pyproject.toml.

Environment variables:
    MQCORE_TESTING   1: also build the extensions that only tests use (tests/native); 0: not. The
                     default is 1 for `build_ext --inplace` and 0 otherwise, wheels included
    MQCORE_ONLY      packages or modules to build, as "mqcore.base mqcore.binding.core"; empty: all
    MQCORE_CFLAGS    further compiler flags: sanitizers, widened races (-DMQ_WIDEN=20), coverage
    MQCORE_LDFLAGS   further linker flags
    MQCORE_SODIUM    a libsodium to link, as ":libsodium.so.23", which auditwheel then packs into
                     the wheel; without it, libsodium is looked up at run time
    MQCORE_GENERATED where the C++ goes; Cython makes all of it anew when another environment asks,
                     so each environment has a folder of its own
    MQCORE_IN_PLACE  1: compile nothing; `make` has built the extensions in place for this
                     editable install
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

# a PEP 517 build does not look here; and `tools` has names of packages that others look for
sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
from translate import translate_all  # noqa: E402

sys.path.pop(0)

# import package -> folder; nothing lands in site-packages but mqcore/, and what Spark looks for
ROOMS = {"mqcore": "mqcore", "mqcore.transports": "transports", "mqcore.protocols": "protocols"}
# the same in development builds alone: what only tests use
DEVELOPMENT = {"mqcore.testing.native": "tests/native"}
FOUND_BY_SPARK = {"pyspark_mqcore": "mqcore/spark/plugin"}
LAYOUT = Path("build/layout")
SHOWN = {".pxd", ".py", ".pyi", ".h", ".hpp"}      # headers, which declarations include
# Rarely run, or mostly Python's own work: a third less time to compile at -O1
COLD = ("mqcore.base.secret.", "mqcore.base.sodium.", "mqcore.binding.accounts.",
        "mqcore.binding.plane.", "mqcore.spi.", "mqcore.testing.")
# Cython puts what many modules need (memoryviews, functions, argument parsing) here, once
SHARED = "mqcore._cyutility"
# Cython marks with this macro what runs once, when a module is imported. Half of the time of
# compiling most modules went into optimizing it
ONCE = '-DCYTHON_SMALL_CODE=__attribute__((cold,optimize("O1")))'
# -w: warnings about generated code are not the builder's concern; -g0 after CPython's own -g
CFLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-fno-strict-aliasing", "-w", ONCE,
          *os.environ.get("MQCORE_CFLAGS", "").split()]
LDFLAGS = ["-pthread", *os.environ.get("MQCORE_LDFLAGS", "").split()]
# The headers that generated code includes: half the time of compiling a small module
HEADERS = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <sys/mman.h>
"""
CORES = os.cpu_count() or 1


def link_layout() -> str:
    """Show Cython and mypy, which look names up by path, the tree that pip installs.

    Links are per file: setuptools drops directories it has already seen by inode,
    so a link to a folder would hide the real folder from the sdist. Links that are right stay as
    they are: another program may read them now.
    """
    links = {LAYOUT.joinpath(*package.split("."), source.relative_to(folder)): source
             for package, folder in {**ROOMS, **DEVELOPMENT}.items()
             for source in Path(folder).rglob("*")
             if source.suffix in SHOWN or source.name == "py.typed"}
    for path in sorted(LAYOUT.rglob("*"), reverse=True):  # what is in a folder before the folder
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif not path.is_dir() and path not in links:
            path.unlink()
    for link, source in links.items():
        target = os.path.relpath(source, link.parent)
        if link.is_symlink() and os.readlink(link) == target:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(target)
        except OSError:  # Windows without developer mode
            shutil.copy2(source, link)
    return LAYOUT.as_posix()


def testing() -> bool:
    """Whether to build what only tests use."""
    return (os.environ.get("MQCORE_TESTING") or str(int("--inplace" in sys.argv))) == "1"


def rooms(build: bool = False) -> dict[str, str]:
    """The packages to build, or to install. An editable install finds what only tests use, whoever
    builds it."""
    development = testing() or not build and "editable_wheel" in sys.argv
    return {**ROOMS, **DEVELOPMENT} if development else ROOMS


def wanted(name: str) -> bool:
    """Whether to build this module."""
    only = tuple(f"{room}." for room in os.environ.get("MQCORE_ONLY", "").split())
    return not only or f"{name}.".startswith(only)


def optimized(name: str, flags: list[str]) -> list[str]:
    return ["-O1" if flag == "-O2" and f"{name}.".startswith(COLD) else flag for flag in flags]


def extensions():
    if os.environ.get("MQCORE_IN_PLACE"):
        return
    yield Extension(SHARED, [f"{SHARED.replace('.', '/')}.c"],  # Cython makes this one in C
                    extra_compile_args=CFLAGS[1:], extra_link_args=LDFLAGS)
    for package, folder in rooms(build=True).items():
        for pyx in sorted(Path(folder).rglob("*.pyx")):
            name = ".".join((package, *pyx.relative_to(folder).with_suffix("").parts))
            if wanted(name):
                yield Extension(name, [pyx.as_posix()], language="c++",
                                extra_compile_args=optimized(name, CFLAGS),
                                extra_link_args=LDFLAGS)


class Build(build_ext):
    """Compiles with precompiled headers, through ccache where it is installed, and says how far it
    is."""

    def build_extensions(self) -> None:
        self.done = 0
        if self.compiler.compiler_type == "unix":
            self._use_ccache()
            header = self._precompile()
            for extension in self.extensions:
                if extension.name != SHARED:
                    extension.extra_compile_args = [*header, *extension.extra_compile_args]
                if extension.name == "mqcore.base.sodium" and os.environ.get("MQCORE_SODIUM"):
                    library = os.environ["MQCORE_SODIUM"]
                    extension.extra_link_args = [*LDFLAGS, "-Wl,--no-as-needed", f"-l{library}"]
        super().build_extensions()

    def build_extension(self, extension: Extension) -> None:
        super().build_extension(extension)
        self.done += 1
        if sys.stderr.isatty():
            end = "\n" if self.done == len(self.extensions) else ""
            print(f"\rcompiled {self.done} of {len(self.extensions)}", end=end, file=sys.stderr)

    def _commands(self):
        return {name: getattr(self.compiler, name)
                for name in ("compiler_so", "compiler_so_cxx") if hasattr(self.compiler, name)}

    def _use_ccache(self) -> None:
        if not shutil.which("ccache"):
            return
        # a precompiled header counts by its .sum; another checkout's paths are the same from within
        for name, value in {"SLOPPINESS": "pch_defines,time_macros", "PCH_EXTSUM": "1",
                            "BASEDIR": os.getcwd(), "NOHASHDIR": "1"}.items():
            os.environ.setdefault(f"CCACHE_{name}", value)
        for name, command in self._commands().items():
            if "ccache" not in os.path.realpath(shutil.which(command[0]) or ""):
                setattr(self.compiler, name, ["ccache", *command])

    def _precompile(self) -> list[str]:
        """The flags with which the compiler finds HEADERS compiled already; none where it
        cannot."""
        command = [*self._commands().get("compiler_so_cxx", self.compiler.compiler_so),
                   *(f"-I{folder}" for folder in self.include_dirs), *CFLAGS, "-fpch-preprocess"]
        compiler = subprocess.run([*command[:-1], "--version"], capture_output=True).stdout
        parts = repr([HEADERS, command, sys.version, compiler]).replace(os.getcwd(), ".")
        how = hashlib.sha256(parts.encode()).hexdigest()[:16]
        header = Path(self.build_temp).parent / "headers" / how / "mqcore.h"
        compiled = header.with_name("mqcore.h.gch")
        if not compiled.exists():
            shutil.rmtree(header.parent.parent, ignore_errors=True)  # of other flags
            header.parent.mkdir(parents=True)
            header.write_text(HEADERS)
            partial = compiled.with_suffix(".part")
            made = subprocess.run([*command, "-x", "c++-header", header, "-o", partial],
                                  capture_output=True, check=False)
            if made.returncode:
                return []
            partial.rename(compiled)
            compiled.with_name("mqcore.h.gch.sum").write_text(how)     # for ccache
        return ["-fpch-preprocess", "-include", header.as_posix()]


def packages():
    for package, folder in rooms().items():
        yield package
        yield from (f"{package}.{sub}" for sub in find_packages(folder))
    yield from FOUND_BY_SPARK


def cache_folder() -> str | None:
    """Where a build in place keeps the C++ of modules that do not change from one checkout to the
    next; ccache does the same for what is made of it."""
    if "--inplace" not in sys.argv:
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return os.path.join(home, "mqcore", "cython")


def translated():
    """The extensions as C++; as they are for a command that only names their sources. Such commands
    are most of what pip and build run, and Cython looks at all sources for each."""
    if sys.argv[1:2] in (["egg_info"], ["dist_info"], ["sdist"]):
        return list(extensions())
    layout = link_layout()
    return translate_all(
        list(extensions()),
        roots={layout: "", **{folder: package for package, folder in rooms(build=True).items()}},
        processes=min(CORES, 16),
        include_path=[layout],
        build_dir=os.environ.get("MQCORE_GENERATED", "build/cython"),
        quiet=True,
        cache=cache_folder(),
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "freethreading_compatible": True,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "embedsignature": True,
            "emit_code_comments": False,
        },
    )


setup(
    packages=list(packages()),
    package_dir={**rooms(), **FOUND_BY_SPARK},
    ext_modules=translated(),
    cmdclass={"build_ext": Build},
    options={"build_ext": {"parallel": CORES}},
)
