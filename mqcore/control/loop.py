"""The control thread: one per context, for everything that is rare.

A small event loop: calls from other threads, timers, readable and writable descriptors. No message
passes through it. Callbacks run on the thread "mqcore-control" and must not block. Name look-ups
run on short-lived workers (`resolve`). If a callback raises, the loop reports it through `on_error`
and continues. A finalizer that the garbage collector runs on this thread may find any call here
half done: it is a guest (base/waits.pyx), which closes nothing itself.

Thread-safe: call, call_at, call_wait, resolve, authenticate, add_reader, add_writer, remove, wake,
stop. Call them without holding a lock that a callback may need. A forked child has no such thread:
see `abandon`.
"""

from __future__ import annotations

import heapq
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from mqcore.base.native import selectors, threading
from mqcore.base.threads import Thread
from mqcore.base.waits import Busy, Event, Released, Wakeup
from mqcore.control.look_ups import LookUps
from mqcore.control.workers import Workers

MAX_WORKERS = 32  # concurrent authentication callbacks; further ones queue
COMPACT = 64  # cancelled timers left in the heap before it is swept
LONGEST = 3600.0  # seconds of sleep; poll's own limit is 24 days


class Timer:
    """What call_at() returns."""

    __slots__ = ("_loop", "args", "fn", "when")

    def __init__(self, loop: ControlLoop, when: float, fn: Callable[..., Any],
                 args: tuple[Any, ...]) -> None:
        self._loop, self.when, self.args = loop, when, args
        self.fn: Callable[..., Any] | None = fn

    def cancel(self) -> None:
        """Cancel from any thread. Idempotent. On the control thread: the timer will not run."""
        if self.fn is not None:
            self.fn, self.args = None, ()
            self._loop._cancelled += 1

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


def report(error: BaseException, source: Any) -> None:
    """The default `on_error`: passes the error to threading.excepthook, which prints it."""
    threading.excepthook(threading.ExceptHookArgs(
        (type(error), error, error.__traceback__, threading.current_thread())))


def run_now(fn: Callable[[], Any], callback: Callable[..., Any]) -> None:
    """A worker's job, on the calling thread."""
    try:
        result = fn()
    except Exception as error:
        callback(None, error)
    else:
        callback(result, None)


class ControlLoop:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic,
                 on_error: Callable[[BaseException, Any], None] = report,
                 lock: Any = None) -> None:
        """lock: the RLock that callbacks take. Callers do not wait for this thread while they hold
        it. A signal handler may have interrupted a call that holds it; the loop releases it
        then."""
        self.lock = lock
        self.clock = clock
        self.on_error = on_error
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._timers: list[Timer] = []
        self._cancelled = 0
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[int, dict[int, Callable[[], Any]]] = {}  # fd: event: handler
        self._wakeup: Wakeup | None = Wakeup()
        self._wakeup_fd = self._wakeup.fd
        self._selector.register(self._wakeup_fd, selectors.EVENT_READ)
        self._thread: Thread | None = None
        # Of the control thread. current_thread() would register threads that Python did not start.
        self._ident = 0
        self._stepped = False
        self._stopping = False
        self._closed = False
        # Over start() and stop(), never over the thread's own end: a signal handler may interrupt
        # the call that has it, and wait for that end.
        self._lock = threading.RLock()
        self._starting = False
        self._gate = Event()
        self._ends = deque(["once"])
        self._look_ups = LookUps(self)
        self._authenticators = Workers(self, "mqcore-allow", MAX_WORKERS)
        self._pid = os.getpid()

    # -- life --------------------------------------------------------------------------------------

    def start(self, threaded: bool = True) -> None:
        """Start the thread. Idempotent. It gets no signals, which are for the main thread.
        threaded: False where the calling thread runs the loop itself, with step()."""
        with self._lock:
            if not threaded:
                self._ident = threading.get_ident()
                self._stepped = True
                return
            if self._thread is not None or self._stopping:
                return
            gate = self._gate = Event()

            def run() -> None:
                gate.wait()  # Ctrl-C may hit start(): this thread runs if it was kept
                if self._thread is thread and not self._closed:
                    self._run()

            thread = Thread(run, "mqcore-control")
            self._starting = True
            try:
                self.spawn(thread)
                self._thread = thread
            finally:
                gate.set()
                self._starting = False
                if self._thread is None and self._stopping:  # by a handler, which then raised
                    self._finish()

    def spawn(self, thread: Thread) -> None:
        """Start a thread that gets no signals."""
        thread.start(masked=True)

    def stop(self) -> None:
        """Run the calls that were queued before, then end the thread and wait for it. Drops pending
        timers and workers. On the control thread itself it does not wait."""
        if self._pid != os.getpid():
            self.abandon()
            return
        with self._lock:
            thread, starting = self._thread, self._starting
            self._stopping = True
        self._look_ups.stop()
        self._authenticators.stop()
        self._wake()
        if starting:  # this is a signal handler inside start(); the thread ends as it begins
            return
        if thread is None:
            self._finish()
            return
        if not self.on_thread:
            with Released(self.lock), Released(self._lock):
                thread.join()

    def abandon(self) -> None:
        """In a forked child: release the inherited descriptors without changing state shared with
        the parent (closing the epoll descriptor is safe, unregistering from it would not be)."""
        if not self._closed:
            self._closed = self._stopping = True
            self._lock = threading.RLock()
            self._thread = None
            self._ident = 0
            self._handlers.clear()
            self._selector.close()
            if self._wakeup is not None:
                self._wakeup.abandon()
            self._wakeup = None

    @property
    def running(self) -> bool:
        return self._thread is not None and not self._closed

    @property
    def on_thread(self) -> bool:
        return threading.get_ident() == self._ident

    # -- calls -------------------------------------------------------------------------------------

    def call(self, fn: Callable[..., Any], *args: Any) -> None:
        """Run fn(*args) on the control thread soon, in the order of the calls. Dropped after
        stop()."""
        self._calls.append((fn, args))
        self._wake()

    def call_wait(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run fn(*args) on the control thread and wait for its result or exception. Runs it
        directly on that thread itself, or if there is none (not started, stopped, forked)."""
        if self.on_thread or not self.running or self._pid != os.getpid():
            return fn(*args)
        done = Event()
        box: list[Any] = [None, None]

        def run() -> None:
            try:
                box[0] = fn(*args)
            except BaseException as error:
                box[1] = error
            done.set()

        self.call(run)
        with Released(self.lock), Released(self._lock):
            self._await(done, run)
        if box[1] is not None:
            raise box[1]
        return box[0]

    def _await(self, done: Event, run: Callable[[], None]) -> None:
        while not done.wait(0.5):
            # stop() may have run in between, or the interpreter is shutting down and has frozen the
            # thread. Then only this thread can run it.
            if (self._closed or sys.is_finalizing()) and not done.is_set():
                try:
                    self._calls.remove((run, ()))
                except ValueError:
                    done.wait()
                else:
                    run()

    def call_at(self, when: float, fn: Callable[..., Any], *args: Any) -> Timer:
        """Run fn(*args) once the clock has reached `when`."""
        timer = Timer(self, when, fn, args)
        if self.on_thread:
            heapq.heappush(self._timers, timer)
        else:
            self.call(self._push, timer)
        return timer

    def _push(self, timer: Timer) -> None:
        if timer.fn is not None:
            heapq.heappush(self._timers, timer)

    def resolve(self, name: Hashable, fn: Callable[[], Any], callback: Callable[..., Any],
                wanted: Callable[[], bool] = lambda: True) -> None:
        """Run fn(), which may block, on a worker, unless a look-up of the same name runs already.
        Then call callback(result, None) or callback(None, error) on the control thread. If wanted()
        is false when a worker is free, fn() is skipped (control/look_ups.py)."""
        if self._stepped:  # everything happens on one thread, in one order
            self.call(run_now, fn, callback)
        else:
            self.call(self._look_ups.run, name, fn, callback, wanted)

    def authenticate(self, fn: Callable[[], Any], callback: Callable[..., Any]) -> None:
        """Run fn(), an authentication callback of the application, on a worker of its own kind.
        Then call callback(result, None) or callback(None, error) on the control thread."""
        if self._stepped:
            self.call(run_now, fn, callback)
        else:
            self._authenticators.run(fn, callback)

    # -- descriptors -------------------------------------------------------------------------------

    def add_reader(self, fd: int, handler: Callable[[], Any]) -> None:
        """Call handler() whenever fd is readable (level-triggered), until remove()."""
        self.call_wait(self._watch, fd, selectors.EVENT_READ, handler)

    def add_writer(self, fd: int, handler: Callable[[], Any]) -> None:
        self.call_wait(self._watch, fd, selectors.EVENT_WRITE, handler)

    def remove(self, fd: int) -> None:
        """Stop watching. When it returns, the descriptor may be closed. Idempotent."""
        self.call_wait(self._unwatch, fd)

    def _watch(self, fd: int, event: int, handler: Callable[[], Any]) -> None:
        if self._closed:
            return
        handlers = self._handlers.setdefault(fd, {})
        fresh = not handlers
        handlers[event] = handler
        mask = 0
        for bit in handlers:
            mask |= bit
        try:
            (self._selector.register if fresh else self._selector.modify)(fd, mask)
        except BaseException:
            del handlers[event]
            if fresh:
                del self._handlers[fd]
            raise

    def _unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None and not self._closed:
            if self._pid == os.getpid():
                self._selector.unregister(fd)

    # -- the thread --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check the clock again, for clocks other than real time."""
        self._wake()

    def _wake(self) -> None:
        if self._thread is not None:
            self._gate.set()  # a handler inside start() may wait for the thread
        # Always: that another call writes does not suffice, since it may be the one that this
        # handler has interrupted.
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup.write()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        with Busy():
            while not self._stopping or self._calls:
                self._turn()
        self._finish()
        self._ident = 0  # another thread may get this number

    def step(self) -> bool:
        """Of a loop without a thread: one turn, without waiting. False: there was nothing to do."""
        return not self._closed and self._turn(0) > 0

    def due(self) -> float:
        """When the next timer is due; inf: there is none."""
        self._timeout()
        return self._timers[0].when if self._timers else math.inf

    def _turn(self, patience: float | None = None) -> int:
        """How much there was to do."""
        timeout = self._timeout()
        try:
            ready = self._selector.select(timeout if patience is None else patience)
        except InterruptedError:
            ready = []
        for key, events in ready:
            if key.fd == self._wakeup_fd:
                self._clear_wakeup()
            else:
                self._dispatch(key.fd, events)
        done = len(ready) + self._run_timers() + len(self._calls)
        for _ in range(len(self._calls)):
            fn, args = self._calls.popleft()
            self._guard(fn, args)
            del fn, args
        return done

    def _timeout(self) -> float:
        if self._calls or self._stopping:
            return 0
        timers = self._timers
        if self._cancelled > COMPACT and self._cancelled * 2 > len(timers):
            self._cancelled = 0
            self._timers = timers = [t for t in timers if t.fn is not None]
            heapq.heapify(timers)
        while timers and timers[0].fn is None:
            heapq.heappop(timers)
        return min(max(0.0, timers[0].when - self.clock()), LONGEST) if timers else LONGEST

    def _clear_wakeup(self) -> None:
        if self._wakeup is not None:
            self._wakeup.clear()

    def _dispatch(self, fd: int, events: int) -> None:
        for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
            # an earlier handler may have removed it
            handler = self._handlers.get(fd, {}).get(event)
            if events & event and handler is not None:
                self._guard(handler, ())

    def _run_timers(self) -> int:
        now = self.clock()
        due = []
        while self._timers and self._timers[0].when <= now:
            due.append(heapq.heappop(self._timers))
        for timer in due:  # timers that they add wait for the next turn
            # in this order: cancel() on another thread clears fn first
            args, fn = timer.args, timer.fn
            if fn is not None:
                timer.fn, timer.args = None, ()
                self._guard(fn, args)
        return len(due)

    def _guard(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            fn(*args)
        except BaseException as error:
            try:
                self.on_error(error, fn)
            except BaseException:
                pass  # a failing hook must not end the thread

    def _finish(self) -> None:
        try:
            self._ends.pop()
        except IndexError:  # another call has, or does
            return
        self._closed = True
        self._wakeup = None
        self._timers.clear()
        self._handlers.clear()
        self._selector.close()
