"""How a candidate is spelled: LIBRARY, LIBRARY+VARIANT, LIBRARY@BUILD, or both. Builds and variants
so take part side by side.

A build is a folder, a checkout built in place (or what a wheel was unpacked into), or the Python
interpreter of another environment; `mqcore@../before` and `pyzmq@/envs/old/bin/python` are
candidates like any other. Both sides of a measurement are of the same build.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple

from libraries import LIBRARIES

# where a checkout of ours keeps what is not below its package
ROOMS = {"mqcore": "mqcore", "mqcore.transports": "transports", "mqcore.protocols": "protocols",
         "mqcore.testing.native": "tests/native"}


class Candidate(NamedTuple):
    library: str
    variant: str  # "", "tuned", "roomy", "sp", "marks" or "upgrade"
    build: str  # a path, or "": what is installed here


def parse(name: str) -> Candidate:
    what, _, build = name.partition("@")
    library, _, variant = what.partition("+")
    return Candidate(library, variant, build)


def spelled(library: str, variant: str, build: str) -> str:
    return f"{library}{'+' * bool(variant)}{variant}{'@' * bool(build)}{build}"


def varied(name: str, variant: str) -> str:
    """The same candidate with other options."""
    return spelled(*parse(name)._replace(variant=variant))


def known(name: str) -> str:
    """The type of an argument: a candidate, its build as an absolute path."""
    library, variant, build = parse(name)
    if library not in LIBRARIES:
        raise argparse.ArgumentTypeError(f"no library {library!r}: {', '.join(LIBRARIES)}")
    if variant and variant not in LIBRARIES[library].variants:
        raise argparse.ArgumentTypeError(f"no variant {variant!r} of {library}")
    if not build:
        return name
    path = Path(build).absolute()
    module = LIBRARIES[library].module
    if path.is_dir() and not (path / module.replace(".", "/") / "__init__.py").exists():
        raise argparse.ArgumentTypeError(f"no {module} in {path}")
    if not path.exists():
        raise argparse.ArgumentTypeError(f"no folder and no interpreter: {path}")
    return spelled(library, variant, str(path))


def kind(name: str) -> type:
    """The class of libraries.py."""
    return LIBRARIES[parse(name).library]


def label(name: str) -> str:
    """For tables: a build by the last part of its path that says something."""
    library, variant, build = parse(name)
    if not build:
        return name
    parts = [part for part in Path(build).parts if part != "bin" and not part.startswith("python")]
    return spelled(library, variant, parts[-1])


def interpreter(name: str) -> str:
    build = parse(name).build
    return build if build and not Path(build).is_dir() else sys.executable


def present(name: str) -> bool:
    return bool(parse(name).build) or importlib.util.find_spec(kind(name).module) is not None


class Checkout:
    """An import hook: `mqcore` and its packages from this folder, whatever is installed."""

    def __init__(self, folder: Path):
        self.folder = folder

    def find_spec(self, name: str, path=None, target=None):
        where = self.folder / ROOMS.get(name, "-")
        if not (where / "__init__.py").exists():
            return None
        return importlib.util.spec_from_file_location(
            name, where / "__init__.py", submodule_search_locations=[str(where)]
        )


def load(name: str, size: int = 0, table: dict = LIBRARIES):
    """In the process of an end: the candidate, from its own build, ready to open sockets."""
    library, variant, path = parse(name)
    build = Path(path or "-")
    if build.is_dir():
        sys.path.insert(0, str(build))  # for its entry points, and what is no checkout of ours
        sys.meta_path.insert(0, Checkout(build))
    return table[library](size, variant)
