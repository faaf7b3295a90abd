"""Hub: the control plane of one context. It owns the data plane and the control thread, delivers
the data plane's notes to their sockets, knows the inproc names, and ends all of them in order.

The tree of owners is Hub -> SocketLinks -> Listener / Connector -> engine. A node ends after its
children. The only process-wide state is the weak list of hubs below, for fork and exit.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from mqcore.base.living import Living
from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.virtual import world as world_here
from mqcore.base.waits import (
    Released,
    YieldingLock,
    guest,
    program_ends,
    start_behind,
    stay_asleep,
)
from mqcore.binding.plane import PlaneCore
from mqcore.control.loop import ControlLoop
from mqcore.errors import ContextClosed, Forked, StateError, UsageError

HUBS: Living[Hub] = Living()  # for fork and exit
MAX_FAILURES = 100  # interruptions and errors that one close(), or step of the end, survives
AGAIN = 0.1  # seconds between two attempts to start a thread that a guest needs
PIN_CHECK = 0.02  # seconds between checks for Python objects that the data plane has released

# of link/plane.pxd
NOTE_UP, NOTE_DOWN, NOTE_PATTERN, NOTE_GONE, NOTE_ASKS, NOTE_ROOM = 1, 2, 3, 5, 6, 7


class Hub:
    """One per context, created with it. Its threads start with the first socket."""

    def __init__(self, io_threads: int = 1, max_sockets: int = 65536,
                 lead_tick: float = 0.01, world: Any = None) -> None:
        """world: runs the context in place of its threads (base/virtual.py)."""
        self.world = world
        self.io_threads = io_threads
        self.lead_tick = lead_tick
        self.flush_tick = 0.0                   # seconds, for tests; 0: the I/O thread's default
        self.histograms = False                # sockets measure latencies
        self.max_sockets = max_sockets
        self.lock = YieldingLock()
        self.sockets: dict[int, Any] = {}       # number: SocketLinks
        self.inproc: dict[str, Any] = {}        # name: (SocketLinks, Endpoint)
        # name: [(SocketLinks, Endpoint)] that wait for this name
        self.suitors: dict[str, list[Any]] = {}
        self.closed = False
        self._left = False      # the context is garbage
        self.closing = False                    # the sockets are being closed; no new ones
        self._notes: list[Any] = []
        self._at = 0
        self.forked = False
        self.internal = False                   # not the program's own, but of a monitor
        self.linger_at_exit: Any = None
        self.left_behind = False        # at the program's end: its threads and sockets end with it
        self._next = 1
        self._threads: tuple[PlaneCore, ControlLoop] | None = None
        self._pins = False
        self._watchers = 0
        self.observers: list[Callable[[Any], None]] = []    # of the events of all sockets
        self._pid = os.getpid()
        HUBS.add(self)

    # -- life --------------------------------------------------------------------------------------

    def _start(self) -> tuple[PlaneCore, ControlLoop]:
        if self.forked or self._pid != os.getpid():
            raise Forked("this context belongs to the parent process",
                         hint="make a new one in the child")
        if self.closed:
            raise ContextClosed("the context is closed", hint="make a new one")
        return self._threads or self._begin()

    def _begin(self) -> tuple[PlaneCore, ControlLoop]:
        world = self.world
        virtual = (0, 0) if world is None else (int(world.clock() * 1e9),
                                                int(world.random() * 2**63))
        plane = PlaneCore(self.io_threads, self.lead_tick, self.flush_tick, self.histograms,
                          *virtual)
        plane.on_pins = self._watch_pins
        loop = ControlLoop(lock=self.lock)
        if world is not None:
            loop.clock, plane.stepper = world.clock, world.step
        try:
            # before the control thread runs: later this would wait for that thread, which may wait
            # for the lock that this thread holds
            loop.add_reader(plane.notes_fileno(), self.pump)
            loop.start(threaded=world is None)
            # a signal handler may have been faster, or have closed the context
            self._threads = self._threads or (None if self.closed else (plane, loop))
        finally:
            if self._plane is not plane:
                loop.stop()
                plane.stop()
                plane.shut()
        self.watched(0)
        return self._start()

    @property
    def _plane(self) -> PlaneCore | None:
        threads = self._threads
        return threads and threads[0]

    @property
    def _loop(self) -> ControlLoop | None:
        threads = self._threads
        return threads and threads[1]

    @property
    def guest(self) -> bool:
        """Whether the caller may not wait for this context: see base/waits.pyx."""
        return self.world is None and guest()

    def call_soon(self, fn: Callable[..., Any], *args: Any) -> None:
        """loop.call(), without the lock: for a guest. Without a loop everything is closed."""
        loop = self._loop
        if loop is not None:
            loop.call(fn, *args)

    def behind(self, fn: Callable[[], Any], daemon: bool = True) -> None:
        """fn() on a thread of its own, for a guest. While none can be started, the control thread
        tries again: in a guest fn() would end here once more."""
        try:
            start_behind(fn, "mqcore-close", daemon)
        except RuntimeError:
            self.call_soon(self._behind_again, fn, daemon)

    def _behind_again(self, fn: Callable[[], Any], daemon: bool) -> None:
        loop = self._loop
        if loop is not None:
            loop.call_at(loop.clock() + AGAIN, self.behind, fn, daemon)

    @property
    def started(self) -> bool:
        return self._plane is not None

    @property
    def plane(self) -> PlaneCore:
        with self.lock:
            return self._start()[0]

    @property
    def loop(self) -> ControlLoop:
        with self.lock:
            return self._start()[1]

    def register(self, links: Any) -> int:
        try:
            return self._register(links)
        except ContextClosed:
            stay_asleep()       # not with the lock
            raise

    def _register(self, links: Any) -> int:
        here = world_here()
        if here is not None and self.world is not here:
            raise StateError("this thread runs a simulated network, and this context is not of it",
                             hint='make the socket with net.host("a").socket(...), or close() the '
                                  'network first')
        with self.lock:
            self._start()
            if self.closing:
                raise ContextClosed("the context is being closed", hint="make a new one")
            if len(self.sockets) >= self.max_sockets:
                raise UsageError(f"the context already has its {self.max_sockets} sockets",
                                 hint="close some, or pass a larger max_sockets to the Context")
            number = self._next
            self._next += 1
            self.sockets[number] = links
            return number

    def opened_links(self, core: Any) -> Any:
        """What was registered for this SocketCore, or None. It is forgotten if it is not open."""
        with self.lock:
            found = next((links for links in list(self.sockets.values())
                          if links.core is core), None)
        if found is None or found.opened:
            return found
        self.forget(found)
        return None

    def forget(self, links: Any) -> None:
        number = links.number
        with self.lock:
            if not number:  # a signal handler's exception has left register() at its very end
                number = next((one for one, known in list(self.sockets.items())
                               if known is links), 0)
            self.sockets.pop(number, None)
        if self._left:
            self.leave()

    def leave(self) -> None:
        """The application has dropped the context: stop once it has no sockets."""
        self._left = True
        if self.closed or self.forked or self.sockets or not self.started:
            return
        self.behind(self.stop)  # not here: this may be one of the threads that stop() joins

    def seal(self, on: bool) -> None:
        """While on, no socket can be opened, so that closing all of them finds all."""
        with self.lock:
            self.closing = on

    def stop(self) -> None:
        """End the threads, after all sockets are closed. Idempotent. A call that Ctrl-C interrupts
        leaves the rest to the next one."""
        with self.lock:
            self.closed = True
            threads = self._threads
        if threads is None or self.forked:
            return
        plane, loop = threads
        loop.call_wait(loop.remove, plane.notes_fileno())
        loop.stop()
        plane.stop()
        with self.lock:  # wait until no other thread is inside pump()
            if self._threads is None:
                return
            self._pump()
            plane.shut()
            self._threads = None

    def watched(self, delta: int) -> None:
        """Add to the number of event streams. Patterns emit events only while there are any."""
        with self.lock:
            self._watchers += delta
            plane = self._plane
            if plane is not None and not self.closed:
                plane.set_watched(self._watchers > 0)

    def observe(self, observer: Callable[[Any], None]) -> None:
        """Call observer(event) for the events of all sockets, those that come later too. It is
        called on any thread, with or without the lock, and must not block."""
        with self.lock:
            self.observers.append(observer)
            self.watched(1)
            self._set_watched(True)

    def unobserve(self, observer: Callable[[Any], None]) -> None:
        """Idempotent. A call that is under way may still end afterwards."""
        with self.lock:
            if observer in self.observers:
                self.observers.remove(observer)
                self.watched(-1)
                self._set_watched(False)

    def _set_watched(self, on: bool) -> None:
        for links in list(self.sockets.values()):
            core = links.core
            if core is None or not links.opened or core.closed:     # one in the making sets itself
                continue
            if on:
                core._set("watched", True)
                if links.plugin.receives:
                    links.idle.start(0.0)
            elif not links.watched:
                core._set("watched", False)

    # -- notes -------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver the data plane's notes in order. A caller that cannot wait for the control thread
        to do so (it needs a message's peer whose UP note is still unread) delivers them itself, but
        not the main thread: Ctrl-C in the middle of a note would leave its peer half known. Call it
        without the lock. Who takes the lock afterwards sees what the notes said."""
        threads = self._threads
        if threads is None:
            return
        plane, loop = threads
        if not (plane.has_notes() or self._notes):
            return
        if threading.get_ident() != threading.main_thread().ident:
            self._pump()
        else:
            with Released(self.lock):  # a signal handler may be in the middle of a call that has it
                loop.call_wait(self._pump)

    def _pump(self) -> None:
        with self.lock:
            if self._plane is None or self.forked:
                return
            self._plane.take_notes(self._notes)
            at = self._at     # a nested pump continues after the note that the outer one handles
            while len(self._notes) > at:
                kind, number, slot, peer, code, fatal, text, *end = self._notes[at]
                links = self.sockets.get(number)
                try:
                    self._at = at + 1
                    if links is not None:
                        links.note(kind, slot, peer, code, fatal, text, *end)
                finally:
                    if kind == NOTE_DOWN:
                        self._plane.release(slot)
                    self._at = at
                    del self._notes[at]

    # -- objects sent by reference -----------------------------------------------------------------

    def _watch_pins(self) -> None:
        """A Python object was sent by reference: check regularly whether it can be released."""
        loop = self._loop
        if not self._pins and loop is not None:  # stop() may have released the loop meanwhile
            self._pins = True
            loop.call_at(loop.clock() + PIN_CHECK, self._check_pins)

    def _check_pins(self) -> None:
        self._pins = False
        plane = self._plane
        if plane is None or plane.drain() == 0 and plane.counters()["slabs"] == 0:
            return
        self._watch_pins()

    # -- fork --------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: close inherited descriptors, change nothing shared with the parent."""
        self.forked = True
        self.lock = YieldingLock()
        if self._threads is not None:
            plane, loop = self._threads
            loop.abandon()
            for links in self.sockets.values():
                links.abandon()
            plane.abandon()


def _after_fork_in_child() -> None:
    for hub in HUBS:
        try:
            hub.abandon()
        except Exception:  # a half-created hub: release the others nevertheless
            sys.excepthook(*sys.exc_info())
    HUBS.clear()


def side_by_side(*calls: Callable[[], Any]) -> None:
    """Run all calls in parallel, the first one on this thread. They run in turn if the interpreter
    is shutting down and starts no more threads, and in a simulated world, which has one thread."""
    if world_here() is not None:
        for call in calls:
            call()
        return
    threads = []
    for call in calls[1:]:
        thread = Thread(call, "mqcore-call")
        try:
            thread.start()
        except RuntimeError:
            call()
        else:
            threads.append(thread)
    for call in calls[:1]:
        call()
    with Released():
        for thread in threads:
            thread.join()


def _at_exit() -> None:
    """At the end of a program: send what is queued, within linger, and report what could not be
    sent. The sockets of all contexts linger at the same time."""
    ending: list[tuple[Hub, list[Any]]] = []
    lingering: list[tuple[Any, Any]] = []
    try:
        program_ends()          # before any of it is sealed
        _seal_all(ending)
        lingering += _in_use(ending)
        program_ends(max((math.inf if links.options["linger"] is None else links.options["linger"]
                          for _, its_own in ending for links in its_own), default=0))
        side_by_side(*(links.close for links, _ in lingering))
    except BaseException:       # Ctrl-C: what has not been sent stays behind, and is reported
        _despite_all(partial(_seal_all, ending))
        with ExitStack() as stack:
            for links, _ in lingering or _in_use(ending):
                stack.callback(_despite_all, partial(links.close, 0))
        raise
    finally:
        with ExitStack() as stack:
            stack.callback(program_ends)
            for hub, its_own in ending:
                stack.callback(_despite_all, partial(_ended, hub, its_own, []))


def _seal_all(ending: list[tuple[Hub, list[Any]]]) -> None:
    """The hubs that end with the program, and their sockets: those that are not there yet."""
    for hub in HUBS:
        if hub.forked or hub.closed or hub._pid != os.getpid() or hub.world is not None \
                or hub.left_behind or any(one is hub for one, _ in ending):
            continue
        hub.seal(True)      # what threads make from now on meets the end
        with hub.lock:
            ending.append((hub, [links for links in hub.sockets.values() if links.opened]))


def _in_use(ending: list[tuple[Hub, list[Any]]]) -> list[tuple[Any, Any]]:
    """With their cores, which their user (such as a device's thread, which this ends) may release
    meanwhile."""
    found = [(links, links.core) for _, its_own in ending for links in its_own]
    return [(links, core) for links, core in found if core is not None]


def _despite_all(call: Callable[[], Any]) -> None:
    """Again if Ctrl-C interrupts it, which a shell or a wrapper may send more than once, or what
    another signal's handler raises."""
    failures: list[BaseException] = []
    for _ in range(MAX_FAILURES):
        try:
            call()
            break
        except BaseException as error:
            failures.append(error)
    for failure in failures:
        if isinstance(failure, Exception):
            raise failure


def _ended(hub: Hub, closed: list[Any], said: list[bool]) -> None:
    """`closed`: its sockets that were open when the program ended. `said`: whether an earlier call
    has reported what is lost."""
    lost = sum(links.report.undelivered for links in closed if links.report is not None)
    if lost and not said:
        print(f"mqcore: {lost} message(s) could not be delivered before the program ended; "
              "close() its sockets to see which, or give them a longer linger", file=sys.stderr)
        said.append(True)
    if hub.sockets:     # a daemon thread is in the middle of making or closing one
        hub.left_behind = True
    else:
        hub.stop()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
