"""Extensions only; every other fact about the project is in pyproject.toml."""

import os
import shutil
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

# import package -> folder; nothing lands in site-packages but mqcore/, and what Spark looks for
ROOMS = {"mqcore": "mqcore", "mqcore.transports": "transports", "mqcore.protocols": "protocols"}
FOUND_BY_SPARK = {"pyspark_mqcore": "mqcore/spark/plugin"}
LAYOUT = Path("build/layout")
# MQCORE_CFLAGS / MQCORE_LDFLAGS: sanitizers, widened races (-DMQ_WIDEN=20), coverage
# MQCORE_ONLY: rooms or modules to build, as "mqcore.base mqcore.sock.core" (empty: all)
# MQCORE_IN_PLACE: `make` has built the extensions in place; an editable install compiles nothing
# -w: warnings about generated code are not the builder's concern; -g0 after CPython's own -g
CFLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-fno-strict-aliasing", "-w",
          *os.environ.get("MQCORE_CFLAGS", "").split()]
LDFLAGS = ["-pthread", *os.environ.get("MQCORE_LDFLAGS", "").split()]


def link_layout() -> str:
    """Show Cython and mypy, which look names up by path, the tree that pip installs.

    Links are per file: setuptools drops directories it has already seen by inode,
    so a link to a folder would hide the real folder from the sdist.
    """
    shutil.rmtree(LAYOUT, ignore_errors=True)
    for package, folder in ROOMS.items():
        for source in Path(folder).rglob("*"):
            if source.suffix in {".pxd", ".py", ".pyi"} or source.name == "py.typed":
                link = LAYOUT.joinpath(*package.split("."), source.relative_to(folder))
                link.parent.mkdir(parents=True, exist_ok=True)
                try:
                    link.symlink_to(os.path.relpath(source, link.parent))
                except OSError:  # Windows without developer mode
                    shutil.copy2(source, link)
    return LAYOUT.as_posix()


def extensions():
    only = tuple(f"{room}." for room in os.environ.get("MQCORE_ONLY", "").split()) or ("mqcore.",)
    if os.environ.get("MQCORE_IN_PLACE"):
        return
    for package, folder in ROOMS.items():
        for pyx in sorted(Path(folder).rglob("*.pyx")):
            name = ".".join((package, *pyx.relative_to(folder).with_suffix("").parts))
            if not f"{name}.".startswith(only):
                continue
            yield Extension(
                name,
                [pyx.as_posix()],
                language="c++",
                extra_compile_args=CFLAGS,
                extra_link_args=LDFLAGS,
            )


def packages():
    for package, folder in ROOMS.items():
        yield package
        yield from (f"{package}.{sub}" for sub in find_packages(folder))
    yield from FOUND_BY_SPARK


setup(
    packages=list(packages()),
    package_dir={**ROOMS, **FOUND_BY_SPARK},
    ext_modules=cythonize(
        list(extensions()),
        include_path=[link_layout()],
        build_dir="build/cython",
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": 3,
            "freethreading_compatible": True,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "embedsignature": True,
            "emit_code_comments": False,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
