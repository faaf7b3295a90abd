"""A lock-order checker: it finds deadlocks that have not happened yet.

`install()` makes each Lock and RLock that mqcore's code creates a `Watched` one. (A Condition has
one of the two inside.) When a thread takes a lock while it holds another, the checker notes the
edge "held -> taken". Locks that the same line of code creates are one class, as in Linux's lockdep,
so two sockets that never meet still show that their locks are taken in both orders. An edge that
closes a cycle is a potential deadlock: some interleaving of the threads that took these ways waits
for ever, even if this run was lucky.

Three more rules:

- Two locks of one class are nodes of their own, so that a fixed order among them is allowed.
- One thread runs all signal handlers. So of the edges of a cycle that can deadlock, at most one is
  from a lock of an interrupted call to one of its handler.
- The control thread counts as a lock: it holds "control thread" for as long as it runs, and a
  thread that waits in `call_wait()` takes it. A caller that holds a lock which some callback wants
  is a cycle, too.

`acquire(blocking=False)` adds no edge, because it never waits. A Lock that is released by another
thread than the one that took it is a signal, and is not watched any more.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import traceback
import types
import weakref
from _thread import allocate_lock, get_ident
from collections.abc import Iterable, Iterator

import mqcore
from mqcore.base import waits

CONTROL = "control thread"
DEPTH = 12  # frames of a stack that are kept


class Cycle(AssertionError):
    """Locks are taken in orders that can deadlock."""


class Graph:
    """Who was held when what was taken. One for the whole run; tests of the checker make more."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._edges: dict[object, dict[object, str]] = {}  # node: {taken after it: where}
        self._of_handlers: set[tuple[object, object]] = set()   # edges that only those have made
        self._handling: set[int] = set()    # threads
        # of each thread, by its number; weakly, for a lock that is forgotten is not held
        self._held: dict[int, list[weakref.ref[Watched]]] = {}
        self._lock = allocate_lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = allocate_lock()
        mine = self._held.get(get_ident(), [])
        self._held = {get_ident(): mine}

    def taking(self, lock: Watched) -> None:
        """The calling thread is about to wait for `lock`."""
        for held in self._mine():
            a, b = (held, lock) if held.site == lock.site else (held.site, lock.site)
            known = b in self._edges.get(a, ())
            if not known or (a, b) in self._of_handlers and get_ident() not in self._handling:
                self._add(a, b, held, lock)

    def took(self, lock: Watched) -> None:
        refs = self._held.setdefault(get_ident(), [])
        refs[:] = [ref for ref in refs if ref() is not None]
        refs.append(lock.ref)

    def released(self, lock: Watched) -> None:
        mine = self._held.get(get_ident(), [])
        # a Lock may be released by another thread
        for refs in (mine, *list(self._held.values())):
            if lock.ref in refs:
                refs.remove(lock.ref)
                return

    def holds(self, lock: Watched) -> bool:
        return lock.ref in self._held.get(get_ident(), ())

    def _mine(self) -> list[Watched]:
        """What the calling thread holds."""
        return [lock for ref in self._held.get(get_ident(), ()) if (lock := ref()) is not None]

    def _add(self, a: object, b: object, held: Watched, lock: Watched) -> None:
        stack = "".join(traceback.format_list(
            [frame for frame in traceback.extract_stack() if frame.filename != __file__][-DEPTH:]))
        where = f"{held.site} held, {lock.site} taken:\n{stack}"
        self._join(a, b, where, get_ident() in self._handling)

    def _join(self, a: object, b: object, where: str, handled: bool) -> None:
        with self._lock:
            if handled:
                self._of_handlers.add((a, b))
            else:
                self._of_handlers.discard((a, b))
            way = self._way(b, a, (a, b) in self._of_handlers)
            self._edges.setdefault(a, {})[b] = where
            if way is not None:
                steps = [self._edges[x][y] for x, y in itertools.pairwise(way)]
                self.found.append("\n".join([where, *steps]))

    def rows(self) -> list[tuple[str, str, str, bool]]:
        """All edges between classes, for join()."""
        return [(a, b, where, (a, b) in self._of_handlers)
                for a, after in self._edges.items() for b, where in after.items()
                if isinstance(a, str) and isinstance(b, str)]

    def join(self, rows: Iterable[tuple[str, str, str, bool]]) -> None:
        """Add another process' rows()."""
        for a, b, where, handled in rows:
            if b not in self._edges.get(a, ()) or (a, b) in self._of_handlers and not handled:
                self._join(a, b, where, handled)

    def _way(self, start: object, goal: object, handled: bool) -> list[object] | None:
        """From start to goal along the edges, or None. handled: not by one of a handler."""
        todo: list[tuple[list[object], bool]] = [([start], handled)]
        seen = {(start, handled)}
        while todo:
            way, handled = todo.pop()
            if way[-1] == goal:
                return way
            for after in self._edges.get(way[-1], ()):
                another = (way[-1], after) in self._of_handlers
                then = after, handled or another
                if not (handled and another) and then not in seen:
                    seen.add(then)
                    todo.append(([*way, after], then[1]))
        return None

    @contextlib.contextmanager
    def handler(self) -> Iterator[None]:
        """In the block the calling thread runs a signal handler."""
        self._handling.add(get_ident())
        try:
            yield
        finally:
            self._handling.discard(get_ident())

    def check(self) -> None:
        """Raises Cycle for what was found since the last check."""
        found, self.found = self.found, []
        if found:
            raise Cycle("these locks can deadlock:\n\n" + "\n\n".join(found))


class Watched:
    """A Lock or RLock that tells the graph. Also a Condition's: hence the names with an
    underscore."""

    def __init__(self, graph: Graph, inner: object, site: str) -> None:
        self.graph, self.site = graph, site
        self.ref = weakref.ref(self)
        self._inner = inner
        self._signal = False
        self._reentrant = hasattr(inner, "_is_owned")
        if self._reentrant:
            self._is_owned = inner._is_owned
            self._release_save = self._save
            self._acquire_restore = self._restore

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        again = self.graph.holds(self)
        if again and blocking and not self._reentrant:
            self._signal = True
            self.graph.released(self)
        new = not again and not self._signal
        if new and blocking:
            self.graph.taking(self)
        taken = self._inner.acquire(blocking, timeout)
        if taken and new:
            self.graph.took(self)
        return taken

    def release(self) -> None:
        self._signal = self._signal or not self.graph.holds(self)
        self._inner.release()
        if not (self._reentrant and self._inner._is_owned()):
            self.graph.released(self)

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._inner.locked()

    def _at_fork_reinit(self) -> None:
        self._inner._at_fork_reinit()

    def _save(self) -> object:
        state = self._inner._release_save()
        self.graph.released(self)
        return state

    def _restore(self, state: object) -> None:
        self.graph.taking(self)
        self._inner._acquire_restore(state)
        self.graph.took(self)

    def __repr__(self) -> str:
        return f"<watched {self._inner!r} of {self.site}>"


GRAPH = Graph()
_PLAIN = threading.Lock, threading.RLock
_plain = 0      # `unwatched()` blocks that the run is in


def _creator() -> str | None:
    """Where mqcore's code makes a lock: "module:line". None: other code's, an Event's own, or one
    that is made `unwatched()`."""
    if _plain:
        return None
    frame = sys._getframe(2)
    if frame.f_code is threading.Condition.__init__.__code__:
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "")
    return f"{name}:{frame.f_lineno}" if name.partition(".")[0] == "mqcore" else None


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Locks made in the block are plain ones. For a test whose signal handlers raise: between a
    Watched lock's bytecodes that leaves it taken for ever, which a plain lock never is."""
    global _plain
    _plain += 1
    try:
        yield
    finally:
        _plain -= 1


def _lock() -> object:
    site = _creator()
    return _PLAIN[0]() if site is None else Watched(GRAPH, _PLAIN[0](), site)


def _rlock() -> object:
    site = _creator()
    return _PLAIN[1]() if site is None else Watched(GRAPH, _PLAIN[1](), site)


def install() -> None:
    """From now on mqcore's locks are watched, those that its modules hold already included."""
    for public in mqcore.__all__:
        getattr(mqcore, public)   # imports the modules that hold locks
    threading.Lock, threading.RLock = _lock, _rlock
    waits.threading = types.SimpleNamespace(    # its Locks are signals
        Lock=_PLAIN[0], RLock=_rlock, Thread=threading.Thread)
    kinds = tuple(type(make()) for make in _PLAIN)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "mqcore":
            for variable, value in list(vars(module).items()):
                if isinstance(value, kinds):
                    setattr(module, variable, Watched(GRAPH, value, f"{name}.{variable}"))
    _watch_control_thread()


def uninstall() -> None:
    threading.Lock, threading.RLock = _PLAIN
    waits.threading = threading


def _watch_control_thread() -> None:
    from mqcore.control.loop import ControlLoop

    run, call_wait = ControlLoop._run, ControlLoop.call_wait

    def watched_run(loop: ControlLoop) -> None:
        thread = _of(loop)
        GRAPH.took(thread)
        try:
            run(loop)
        finally:
            GRAPH.released(thread)

    def watched_call_wait(loop: ControlLoop, fn: object, *args: object) -> object:
        if not loop.on_thread and loop.running:
            with waits.Released(loop.lock), waits.Released(loop._lock):  # as call_wait() does
                GRAPH.taking(_of(loop))
        return call_wait(loop, fn, *args)

    ControlLoop._run, ControlLoop.call_wait = watched_run, watched_call_wait


def _of(loop: object) -> Watched:
    thread = vars(loop).get("lock_order")
    if thread is None:
        thread = loop.lock_order = Watched(GRAPH, _PLAIN[0](), CONTROL)
    return thread
