"""The control thread: one per context, for all that is rare.

A small loop of callbacks: calls from other threads, timers, readable and writable descriptors.
Nothing here is on the way of a message. Callbacks run on the thread "mqcore-control" and must not
block; name look-ups go to short-lived workers (`resolve`). A callback that raises is reported
through `on_error` and the loop goes on.

Thread-safe: call, call_at, call_wait, resolve, judge, add_reader, add_writer, remove, wake, stop.
Call them with no lock held that a callback may want. In a forked child there is no thread: see
`abandon`.
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.base.native import selectors, threading
from mqcore.control.workers import Workers

MAX_WORKERS = 32  # name look-ups at once, and as many callbacks; more wait their turn
COMPACT = 64  # cancelled timers left in the heap before it is swept
LONGEST = 3600.0  # seconds of sleep; poll's own limit is 24 days
# A fault in this thread is this thread's: blocked, it would end the process without a word.
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT,
          signal.SIGTRAP, signal.SIGSYS}


class Timer:
    """What call_at() returns."""

    __slots__ = ("_loop", "args", "fn", "when")

    def __init__(self, loop: ControlLoop, when: float, fn: Callable[..., Any], args: tuple) -> None:
        self._loop, self.when, self.fn, self.args = loop, when, fn, args

    def cancel(self) -> None:
        """From any thread; idempotent. On the control thread: it will not run afterwards."""
        if self.fn is not None:
            self.fn, self.args = None, ()
            self._loop._cancelled += 1

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


def report(error: BaseException, source: Any) -> None:
    """The default `on_error`: to threading.excepthook, which prints it."""
    threading.excepthook(threading.ExceptHookArgs(
        (type(error), error, error.__traceback__, threading.current_thread())))


class ControlLoop:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic,
                 on_error: Callable[[BaseException, Any], None] = report) -> None:
        self.clock = clock
        self.on_error = on_error
        self._calls: deque[tuple[Callable[..., Any], tuple]] = deque()
        self._timers: list[Timer] = []
        self._cancelled = 0
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[int, dict[int, Callable[[], Any]]] = {}  # fd: event: handler
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._woken = False
        self._thread: threading.Thread | None = None
        # Of that thread. Not current_thread(), which would adopt threads that are not Python's.
        self._ident = 0
        self._stopping = False
        self._closed = False
        # Reentrant: a finaliser or a signal handler may call in while its thread is inside.
        self._lock = threading.RLock()  # start and stop
        self._wake_lock = threading.RLock()  # no write to the eventfd once it is closed
        self._look_ups = Workers(self, "mqcore-resolve", MAX_WORKERS)
        self._judges = Workers(self, "mqcore-allow", MAX_WORKERS)
        self._pid = os.getpid()

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Idempotent. The thread gets no signals: those are for the main thread."""
        with self._lock:
            if self._thread is not None or self._closed:
                return
            self._thread = self.spawn(self._run, "mqcore-control")

    def spawn(self, target: Callable[[], Any], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        # A new thread inherits the mask: no moment in which a signal could land there.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return thread

    def stop(self) -> None:
        """Runs what was called before, then ends the thread and waits for it. Timers and workers
        still under way are dropped. On the control thread itself it does not wait."""
        if self._pid != os.getpid():
            self.abandon()
            return
        with self._lock:
            thread = self._thread
            self._stopping = True
        self._look_ups.stop()
        self._judges.stop()
        if thread is None:
            self._finish()
            return
        self._wake()
        if not self.on_thread:
            thread.join()

    def abandon(self) -> None:
        """In a forked child: let go of the inherited descriptors without touching what the parent
        shares with us (closing an epoll descriptor does; unregistering from it would not)."""
        if not self._closed:
            self._closed = self._stopping = True
            self._lock, self._wake_lock = threading.RLock(), threading.RLock()
            self._thread = None
            self._ident = 0
            self._handlers.clear()
            self._selector.close()
            os.close(self._wakeup)

    @property
    def running(self) -> bool:
        return self._thread is not None and not self._closed

    @property
    def on_thread(self) -> bool:
        return threading.get_ident() == self._ident

    # -- calls -------------------------------------------------------------------------------------

    def call(self, fn: Callable[..., Any], *args: Any) -> None:
        """Run fn(*args) on the control thread, soon, in order of the calls. After stop: dropped."""
        self._calls.append((fn, args))
        self._wake()

    def call_wait(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run fn(*args) on the control thread and wait for its result or exception. Directly, if
        this is that thread or there is none (not started, stopped, forked)."""
        if self.on_thread or not self.running or self._pid != os.getpid():
            return fn(*args)
        done = threading.Event()
        box: list[Any] = [None, None]

        def run() -> None:
            try:
                box[0] = fn(*args)
            except BaseException as error:
                box[1] = error
            done.set()

        self.call(run)
        while not done.wait(0.5):
            # stop() may have come in between, or the interpreter is ending and the thread is
            # frozen: then nobody will run it but us
            if (self._closed or sys.is_finalizing()) and not done.is_set():
                try:
                    self._calls.remove((run, ()))
                except ValueError:
                    done.wait()
                else:
                    run()
        if box[1] is not None:
            raise box[1]
        return box[0]

    def call_at(self, when: float, fn: Callable[..., Any], *args: Any) -> Timer:
        """Run fn(*args) when the clock says `when`, not before."""
        timer = Timer(self, when, fn, args)
        if self.on_thread:
            heapq.heappush(self._timers, timer)
        else:
            self.call(self._push, timer)
        return timer

    def _push(self, timer: Timer) -> None:
        if timer.fn is not None:
            heapq.heappush(self._timers, timer)

    def resolve(self, fn: Callable[[], Any], callback: Callable[..., Any]) -> None:
        """Run fn(), which may block, on a worker; then callback(result, None) or
        callback(None, error) on the control thread."""
        self._look_ups.run(fn, callback)

    def judge(self, fn: Callable[[], Any], callback: Callable[..., Any]) -> None:
        """resolve() for the application's callbacks."""
        self._judges.run(fn, callback)

    # -- descriptors -------------------------------------------------------------------------------

    def add_reader(self, fd: int, handler: Callable[[], Any]) -> None:
        """Call handler() whenever fd is readable (level-triggered), until remove()."""
        self.call_wait(self._watch, fd, selectors.EVENT_READ, handler)

    def add_writer(self, fd: int, handler: Callable[[], Any]) -> None:
        self.call_wait(self._watch, fd, selectors.EVENT_WRITE, handler)

    def remove(self, fd: int) -> None:
        """Complete when it returns: the descriptor may be closed. Idempotent."""
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
        """Look at the clock again: for clocks that are not real time."""
        self._woken = False
        self._wake()

    def _wake(self) -> None:
        if self._woken:
            return
        with self._wake_lock:
            if not self._closed and self._pid == os.getpid():
                self._woken = True
                os.eventfd_write(self._wakeup, 1)

    def _run(self) -> None:
        self._ident = threading.get_ident()
        while not self._stopping or self._calls:
            self._turn()
        self._finish()
        self._ident = 0  # the number may be used again

    def _turn(self) -> None:
        try:
            ready = self._selector.select(self._timeout())
        except InterruptedError:
            ready = []
        for key, events in ready:
            if key.fd == self._wakeup:
                self._clear_wakeup()
            else:
                self._dispatch(key.fd, events)
        self._run_timers()
        for _ in range(len(self._calls)):
            fn, args = self._calls.popleft()
            self._guard(fn, args)
            del fn, args

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
        try:
            os.eventfd_read(self._wakeup)
        except BlockingIOError:
            pass
        self._woken = False  # before the calls are taken: a later one writes again

    def _dispatch(self, fd: int, events: int) -> None:
        for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
            handler = self._handlers.get(fd, {}).get(event)  # an earlier one may have removed it
            if events & event and handler is not None:
                self._guard(handler, ())

    def _run_timers(self) -> None:
        now = self.clock()
        due = []
        while self._timers and self._timers[0].when <= now:
            due.append(heapq.heappop(self._timers))
        for timer in due:  # one that they add waits for the next turn
            if timer.fn is not None:
                fn, args = timer.fn, timer.args
                timer.fn, timer.args = None, ()
                self._guard(fn, args)

    def _guard(self, fn: Callable[..., Any], args: tuple) -> None:
        try:
            fn(*args)
        except BaseException as error:
            try:
                self.on_error(error, fn)
            except BaseException:
                pass  # a hook that fails must not end the thread either

    def _finish(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._stopping = True
            self._look_ups.stop()
            self._judges.stop()
            with self._wake_lock:
                self._closed = True
                os.close(self._wakeup)
        self._timers.clear()
        self._handlers.clear()
        self._selector.close()
