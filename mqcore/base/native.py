"""The standard library's threads, locks, sockets and waits, without gevent's patches.

gevent's monkey patching replaces threads by greenlets, and waits by switches to other greenlets.
mqcore's threads wait in C, for the kernel and for each other, and no greenlet may run while one of
its locks is held. So mqcore takes these modules from here. In a program without patches they are
the standard library's own. Attributes are looked up on use, because a program may patch after its
imports.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any


class Native:
    """One module of the standard library, unpatched."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = importlib.import_module(name)

    def __getattr__(self, attribute: str) -> Any:
        monkey = sys.modules.get("gevent.monkey")
        if monkey is None or not monkey.is_module_patched(self._name):
            return getattr(self._plain, attribute)
        return self._original(monkey, attribute)

    def _original(self, monkey: Any, attribute: str) -> Any:
        return monkey.get_original(self._name, attribute)


class Threads(Native):
    """threading. Its classes are made of each other, so that of a patched one a second copy is
    loaded, over the unpatched `_thread`."""

    _copy: ModuleType | None = None

    def _original(self, monkey: Any, attribute: str) -> Any:
        if self._copy is None:
            type(self)._copy = _load(monkey)
        return getattr(self._copy, attribute)


def _load(monkey: Any) -> ModuleType:
    patched = sys.modules["_thread"]
    plain = ModuleType("_thread")
    for name in dir(patched):
        setattr(plain, name, monkey.get_original("_thread", name))
    spec = importlib.util.find_spec("threading")
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules["_thread"] = plain
    try:
        spec.loader.exec_module(copy)
    finally:
        sys.modules["_thread"] = patched
    return copy


if TYPE_CHECKING:
    import _thread as _thread
    import select as select
    import selectors as selectors
    import socket as socket
    import threading as threading
    import time as time
else:
    _thread, select, selectors, socket, time = map(
        Native, ("_thread", "select", "selectors", "socket", "time"))
    threading = Threads("threading")
