"""Home: what a context and its shadows share. It makes mqcore's Context when it is first needed,
knows the open sockets, and closes sockets behind the program's back, as libzmq does: close() of a
socket returns at once, term() waits until what was sent is delivered."""

from __future__ import annotations

import atexit
import errno
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from mqcore.api.context import Context  # it registers its function for the exit before ours
from mqcore.base.living import Living
from mqcore.base.waits import Condition, Event, Released, guest, start_behind
from mqcore.zmq.constants import Errno
from mqcore.zmq.error import ContextTerminated, make
from mqcore.zmq.zap import Handler

if TYPE_CHECKING:
    from mqcore.zmq.shared import Shared

AT_EXIT = 1.0  # seconds that a program's end waits for what was sent
MAX_SOCKETS = 1023  # libzmq's default
HOMES: Living[Home] = Living()


class Home:
    """The open sockets of a context, and those that are still delivering."""

    def __init__(self, io_threads: int) -> None:
        self._pid = os.getpid()
        self.io_threads = io_threads
        self.max_sockets = MAX_SOCKETS
        self.open: set[Shared] = set()
        self.delivering: dict[Any, Event] = {}  # mqcore's socket: its close() is over
        self.terminating = False
        self.closed = False
        self._zap = Handler()
        self.ended = False  # the program is over, and the sockets were closed for it
        self._context: Context | None = None
        self._made: dict[str, Context] = {}
        self._changed = Condition()
        HOMES.add(self)

    def context(self) -> Context:
        """mqcore's own, with what io_threads and max_sockets are now. Takes no lock: the caller may
        hold its socket's, and a handler that interrupts term() wants that one. term() waits for the
        caller, whose socket is open."""
        if self.terminating:
            raise ContextTerminated
        if self._context is None:
            # monitors and sockets that are still delivering count there, not here
            made = Context(io_threads=min(max(self.io_threads, 1), 64),
                              max_sockets=2 * self.max_sockets)
            self._context = self._made.setdefault("context", made)  # another thread was faster
        return self._context

    @property
    def used(self) -> bool:
        """It has threads to end."""
        return self._context is not None and not self._context._hub.forked

    def enter(self, shared: Shared) -> None:
        with self._changed:
            if self.terminating:
                raise make(Errno.ENOTSUP, "the context is terminated; make a new one")
            if len(self.open) >= self.max_sockets:
                raise make(errno.EMFILE,
                           f"{self.max_sockets} sockets are open; MAX_SOCKETS allows no more")
            self.open.add(shared)

    def leave(self, shared: Shared) -> None:
        with self._changed:
            self.open.discard(shared)
            self._changed.notify_all()

    def deliver(self, core: Any, linger: float | None) -> None:
        """Close mqcore's socket, which may be garbage that is being collected; if something is left
        to deliver, on a thread of its own."""
        core._links.hold(core)
        if not guest() and (linger == 0 or core._links.hub.forked or not _owing(core)):
            self._close(core, 0)
            return
        over = self.delivering[core] = Event()
        try:
            start_behind(partial(self._deliver, core, linger, over), "mqcore-zmq")
        except RuntimeError:  # the interpreter ends: there are no new threads
            self._deliver(core, AT_EXIT if linger is None else min(linger, AT_EXIT), over)

    @staticmethod
    def _close(core: Any, linger: float | None) -> None:
        try:
            core.close(linger)
        finally:
            core._links.hold(None)

    def _deliver(self, core: Any, linger: float | None, over: Event) -> None:
        try:
            self._close(core, linger)
        finally:
            with self._changed:
                self.delivering.pop(core, None)
                self._changed.notify_all()
            over.set()

    def term(self) -> None:
        """Every call of its sockets fails with ETERM; until they are closed and have delivered. A
        forked child waits for nothing: the sockets are the parent's."""
        if self._pid != os.getpid():
            self.terminating = self.closed = True
            return
        if guest():  # see base/waits.pyx
            self.terminating = True
            start_behind(self.term, "mqcore-zmq")
            return
        with Released():
            self._term()

    def _term(self) -> None:
        with self._changed:
            self.terminating = True
            sockets = list(self.open)
        for shared in sockets:  # not under the lock: a socket that just opens wants it
            shared.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self.open and not self.delivering)
            context, self._context = self._context, None
            self.closed = True
        if context is not None and not context._hub.forked:
            if context._hub.started:
                context._hub.loop.call_wait(self._zap.end)
            context.close(0)

    def ask(self, request: list[bytes], tell: Any) -> bool:
        """The ZAP handler of this context; False: there is none. On the control thread."""
        context = self._context
        return context is not None and not self.terminating and self._zap.ask(
            context, request, tell)

    def at_exit(self) -> None:
        """A program that ends without term() waits for at most a second."""
        limit = time.monotonic() + AT_EXIT
        self.ended = True
        for shared in list(self.open):
            core = shared.core
            if core is not None and not core.closed:
                linger = core.linger
                core.linger = AT_EXIT if linger is None else min(linger, AT_EXIT)
        for core, over in list(self.delivering.items()):
            if not over.wait(max(0.0, limit - time.monotonic())):
                core._links.hurry()
                over.wait()


def _owing(core: Any) -> bool:
    """Something that was sent has not arrived, as far as one can know."""
    return bool(core._outstanding() > 0 or core._links._unacked() > 0)


def _at_exit() -> None:
    for home in HOMES:
        if home.used:
            home.at_exit()


def _after_fork() -> None:
    """In a child. A thread of the parent may have held these locks, and there is none here to let
    them go; every call then finds that the socket is the parent's."""
    for home in HOMES:
        home._changed = Condition()
        for shared in home.open:
            shared.renew()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)  # after that of mqcore.api.context, so it runs before
