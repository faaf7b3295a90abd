"""Programs that say `import zmq`, run as they are.

install() puts a finder before all others: `zmq` and its modules are then mqcore.zmq and its. Child
processes find the package in `alias/`, which calls install() as well: through PYTHONPATH, or, where
multiprocessing hands it down, sys.path.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mqcore.zmq.differences import absent, missing

ALIAS = "zmq"
REAL = "mqcore.zmq"
SHIM = str(Path(__file__).parent / "alias")


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `zmq.x` as `mqcore.zmq.x`: the same module by two names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != ALIAS and not fullname.startswith(f"{ALIAS}."):
            return None
        found = importlib.util.find_spec(_real(fullname))
        if found is None and not _absent(fullname):
            return None
        package = found is not None and found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: Any) -> ModuleType:
        if _absent(spec.name):
            raise ImportError(missing(spec.name[len(ALIAS) + 1:]))
        module = importlib.import_module(_real(spec.name))
        self._kept = (module.__spec__, module.__loader__)
        return module

    def get_code(self, fullname: str) -> Any:
        """For `python -m zmq.module`."""
        found: Any = importlib.util.find_spec(_real(fullname))
        return found.loader.get_code(found.name)

    def exec_module(self, module: ModuleType) -> None:
        """It is there already; its own spec comes back."""
        module.__spec__, module.__loader__ = self._kept


def install(children: bool = True) -> None:
    """`import zmq` gives mqcore.zmq from now on. RuntimeError if pyzmq is imported already.
    children: in processes that this one starts, too."""
    known = sys.modules.get(ALIAS)
    if known is not None and not known.__name__.startswith(REAL) and known.__file__ != _shim():
        raise RuntimeError("pyzmq is imported already; call mqcore.zmq.install() before")
    if not any(isinstance(finder, Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, Alias())
    for name in tuple(sys.modules):
        if name == REAL or name.startswith(f"{REAL}."):
            sys.modules[ALIAS + name[len(REAL):]] = sys.modules[name]
    if children:
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if SHIM not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([SHIM, *paths])
        if SHIM not in sys.path:
            sys.path.insert(0, SHIM)


def _absent(fullname: str) -> bool:
    """Whether pyzmq has the name and mqcore does not; the program gets the reason."""
    return absent(fullname[len(ALIAS) + 1:]) != ""


def _real(fullname: str) -> str:
    return REAL + fullname[len(ALIAS):]


def _shim() -> str:
    return str(Path(SHIM) / ALIAS / "__init__.py")


def run(program: str, arguments: Sequence[str]) -> None:
    """Run a program's file, or a module given as "-m name", as __main__."""
    install()
    if program == "-m":
        name, *arguments = arguments
        sys.argv = [name, *arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).resolve().parent))
    runpy.run_path(program, run_name="__main__")
