"""Hub: the control plane of one context. It owns the data plane and the control thread, hands the
data plane's notes to the sockets they are for, knows the inproc names, and ends all of it in order.

The tree of owners: Hub -> SocketLinks -> Listener / Connector -> engine. A node ends after its
children. Process-wide there are only the weak list of hubs for fork and exit, below.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.control.loop import ControlLoop
from mqcore.errors import ContextClosed, Forked, UsageError
from mqcore.sock.plane import PlaneCore

HUBS: weakref.WeakSet[Hub] = weakref.WeakSet()  # for fork and exit
PIN_CHECK = 0.02  # seconds between looks for Python objects that the data plane is done with

NOTE_UP, NOTE_DOWN, NOTE_PATTERN, NOTE_GONE, NOTE_ASKS = 1, 2, 3, 5, 6  # of link/plane.pxd


class Hub:
    """One per context; made with it, its threads start with the first socket."""

    def __init__(self, io_threads: int = 1, max_sockets: int = 65536,
                 poller: str | None = None, lead_tick: float = 0.01) -> None:
        self.io_threads = io_threads
        self.lead_tick = lead_tick
        self.poller = poller or os.environ.get("MQCORE_POLLER") or "epoll"  # for tests
        self.max_sockets = max_sockets
        self.lock = threading.RLock()
        self.sockets: dict[int, Any] = {}       # number: SocketLinks
        self.inproc: dict[str, Any] = {}        # name: (SocketLinks, Endpoint)
        self.suitors: dict[str, list[Any]] = {}  # name: [(SocketLinks, Endpoint)] that wait for it
        self.closed = False
        self.closing = False                    # its sockets are being closed: no more of them
        self._notes: list[Any] = []
        self._at = 0
        self.forked = False
        self.linger_at_exit: Any = None
        self._next = 1
        self._plane: PlaneCore | None = None
        self._loop: ControlLoop | None = None
        self._pins = False
        self._watchers = 0
        self._pid = os.getpid()
        HUBS.add(self)

    # -- life --------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self.forked or self._pid != os.getpid():
            raise Forked("this context belongs to the parent process",
                         hint="make a new one in the child")
        if self.closed:
            raise ContextClosed("the context is closed", hint="make a new one")
        if self._plane is None:
            plane = PlaneCore(self.io_threads, self.poller, self.lead_tick)
            plane.on_pins = self._watch_pins
            loop = ControlLoop()
            try:
                # before its thread runs: afterwards this would wait for that thread, which may
                # want the lock that we hold
                loop.add_reader(plane.notes_fileno(), self.pump)
                loop.start()
            except BaseException:  # no thread to be had
                loop.stop()
                plane.stop()
                plane.shut()
                raise
            self._plane, self._loop = plane, loop

    @property
    def started(self) -> bool:
        return self._plane is not None

    @property
    def plane(self) -> PlaneCore:
        with self.lock:
            self._start()
            return self._plane

    @property
    def loop(self) -> ControlLoop:
        with self.lock:
            self._start()
            return self._loop

    def register(self, links: Any) -> int:
        with self.lock:
            self._start()
            if self.closing:
                raise ContextClosed("the context is being closed", hint="make a new one")
            if len(self.sockets) >= self.max_sockets:
                raise UsageError(f"the context has its {self.max_sockets} sockets already",
                                 hint="close some, or give max_sockets to the Context")
            number = self._next
            self._next += 1
            self.sockets[number] = links
            return number

    def forget(self, number: int) -> None:
        with self.lock:
            self.sockets.pop(number, None)

    def seal(self, on: bool) -> None:
        """No socket is opened while it is on: who closes them all shall find them all."""
        with self.lock:
            self.closing = on

    def stop(self) -> None:
        """After every socket is closed: end the threads. Idempotent."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            plane, loop = self._plane, self._loop
        if loop is not None and not self.forked:
            loop.call_wait(loop.remove, plane.notes_fileno())
            loop.stop()
            plane.stop()
            self.pump()
            plane.shut()
            self._plane = self._loop = None

    def watched(self, delta: int) -> None:
        """So many more event streams: patterns tell what happens only while there are any."""
        with self.lock:
            self._watchers += delta
            if self._plane is not None and not self.closed:
                self._plane.set_watched(self._watchers > 0)

    # -- notes -------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Hand the data plane's notes out, in order. On the control thread, or on an application's
        that cannot wait for it (a message's peer is asked for before its UP note was read)."""
        with self.lock:
            if self._plane is None or self.forked:
                return
            self._plane.take_notes(self._notes)
            at = self._at     # a pump within a pump goes on behind what the outer one has in hand
            # each leaves the list when it is done: Ctrl-C may strike anywhere
            while len(self._notes) > at:
                kind, number, slot, peer, code, fatal, text = self._notes[at]
                links = self.sockets.get(number)
                try:
                    self._at = at + 1
                    if links is not None:
                        links.note(kind, slot, peer, code, fatal, text)
                finally:
                    if kind == NOTE_DOWN:
                        self._plane.release(slot)
                    self._at = at
                    del self._notes[at]

    # -- objects sent by reference -----------------------------------------------------------------

    def _watch_pins(self) -> None:
        """Some Python object was sent by reference: look now and then whether it can go."""
        if not self._pins:
            self._pins = True
            self._loop.call_at(self._loop.clock() + PIN_CHECK, self._check_pins)

    def _check_pins(self) -> None:
        self._pins = False
        if self._plane.drain() == 0 and self._plane.counters()["slabs"] == 0:
            return
        self._watch_pins()

    # -- fork --------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: close what was inherited, change nothing that the parent shares."""
        self.forked = True
        self.lock = threading.RLock()
        if self._plane is not None:
            self._loop.abandon()
            for links in self.sockets.values():
                links.abandon()
            self._plane.abandon()


def _after_fork_in_child() -> None:
    for hub in list(HUBS):
        try:
            hub.abandon()
        except Exception:  # one that was half made: the others must be let go of all the same
            sys.excepthook(*sys.exc_info())
    HUBS.clear()


def side_by_side(*calls: Callable[[], Any]) -> None:
    """All at once, the first on this thread; one after the other where the interpreter that ends
    starts no threads any more."""
    threads = []
    for call in calls[1:]:
        thread = threading.Thread(target=call, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            call()
        else:
            threads.append(thread)
    for call in calls[:1]:
        call()
    for thread in threads:
        thread.join()


def _at_exit() -> None:
    """A script that simply ends delivers what it sent, within its linger, or says what it could
    not."""
    for hub in list(HUBS):
        if hub.forked or hub.closed or hub._pid != os.getpid():
            continue
        with hub.lock:
            open_ones = list(hub.sockets.values())
        # whoever had them (a device's thread, which their closing ends) may let go meanwhile
        cores = [links.core for links in open_ones]
        side_by_side(*(links.close for links, core in zip(open_ones, cores, strict=True)
                       if core is not None))
        lost = sum(links.report.undelivered for links in open_ones if links.report is not None)
        if lost:
            print(f"mqcore: {lost} message(s) could not be delivered before the program ended; "
                  "close() its sockets to see which, or give them a longer linger", file=sys.stderr)
        hub.stop()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
