"""Event, Condition and Wakeup that Ctrl-C cannot break, locks that a sleeping signal handler does
not keep, and a thread's start.

The standard library writes its own in Python. CPython runs signal handlers between the bytecodes of
the main thread, also in the middle of `Condition.__enter__`: the lock has been acquired, the `with`
block has not begun, and no code will ever release it. The next thread that calls `Event.set()` then
waits for ever. Here all of that is compiled. A handler runs only where a call sleeps, and the
exception of a handler leaves every lock as the caller expects it.

A signal handler may also sleep in a call of its own, in the middle of a call that holds a lock. If
it waits for another thread that needs this lock, both wait for ever. So the locks of the control
plane are YieldingLocks: whatever the main thread sleeps in releases them.

A finalizer runs on any thread: where an object is released, and where the garbage collector starts,
which is at any allocation, also inside a lock of the import system, of `threading` or of `logging`,
for which another thread of ours may wait. It is a guest:

- wherever the garbage collector runs it,
- on a thread that others wait for (Busy): the control thread, and those that run filters in Python,
- and on a thread other than the main one inside a call that holds a YieldingLock or closes a
  socket.

A guest neither waits nor takes a lock of the control plane: what closes something notes it as
closed and leaves the rest to a thread of its own (start_behind). In turn no holder of a
YieldingLock waits for anything, so that those who may wait for one need not fear a circle.

At the end of a program its sockets are closed while daemon threads still wait in them. What these
would raise is of no use, and a thread that prints while the interpreter ends can abort the process
(CPython: "could not acquire lock for <stderr> at interpreter shutdown"). They stay asleep instead.
"""

import gc
import os
import sys
from collections import deque

from cpython.pythread cimport PyThread_get_thread_ident as me
from libc.signal cimport SIGABRT, SIGFPE, SIGILL, SIGSEGV
from libc.stdint cimport int64_t
from posix.signal cimport SIG_BLOCK, SIG_SETMASK, sigdelset, sigfillset, sigset_t
from posix.unistd cimport close, pause, usleep

from mqcore.base.clock cimport now_ns
from mqcore.base.gil cimport finalizing
from mqcore.base.includes cimport SIGBUS, SIGSYS, SIGTRAP, pthread_sigmask

from mqcore.base.native import _thread, threading

cdef double LONGEST = 4_000_000.0       # seconds; longer ones are for ever
cdef int NAP = 10_000           # microseconds between two looks whether the interpreter ends
cdef int64_t LAST = 1_000_000_000       # ns that stay_asleep() gives to other atexit handlers
cdef int64_t AWAKE = 0          # when it ends, monotonic ns; 0: the program goes on
cdef unsigned long MAIN = threading.main_thread().ident
cdef list HELD = []     # YieldingLocks of the main thread, in the order in which it took them
cdef dict HOLDING = {}  # other threads: how many YieldingLocks they hold, and sockets they close
cdef dict BUSY = {}     # threads that others wait for: how often
cdef unsigned long COLLECTOR = 0        # the thread that collects garbage; 0: none does


def _forked() -> None:
    """In a child the thread that forked is the main one."""
    global AWAKE, COLLECTOR, MAIN
    HOLDING.clear()
    BUSY.clear()
    AWAKE = COLLECTOR = 0
    if me() != MAIN:
        HELD.clear()
        MAIN = me()


os.register_at_fork(after_in_child=_forked)


cdef int more(dict counts) except -1:
    counts[me()] = counts.get(me(), 0) + 1
    return 0


cdef int less(dict counts) except -1:
    cdef object left = counts.get(me(), 1) - 1
    if left > 0:
        counts[me()] = left
    else:
        counts.pop(me(), None)
    return 0


def _collecting(phase, info):
    """What gc.callbacks calls around each collection, on its thread. There is one at a time."""
    global COLLECTOR
    COLLECTOR = me() if phase == "start" else 0


gc.callbacks.append(_collecting)


cdef int busy_begin() except -1:
    return more(BUSY)


cdef int busy_end() except -1:
    return less(BUSY)


def guest():
    """Whether the caller may neither wait nor take a lock: it is a finalizer in the middle of
    something that others wait for."""
    return me() == COLLECTOR or me() in BUSY or (me() in HOLDING and me() != MAIN)


def _why() -> dict[str, object]:
    """What guest() and interrupting() look at, for tests."""
    return {"me": me(), "main": MAIN, "collector": COLLECTOR, "busy": dict(BUSY),
            "holding": dict(HOLDING)}


def interrupting():
    """Whether the caller is a signal handler in the middle of the main thread's close() of a
    socket, for which other threads may wait."""
    return me() == MAIN and me() in HOLDING


cdef class Busy:
    """`with Busy():` makes guests of what runs on this thread. only_calls: on the main thread it
    does not, because that may wait where it yields its locks."""

    cdef dict _counts

    def __init__(self, only_calls=False):
        self._counts = HOLDING if only_calls else BUSY

    def __enter__(self):
        more(self._counts)

    def __exit__(self, *error):
        less(self._counts)


cdef class YieldingLock:
    """threading.RLock, which the main thread releases while it sleeps: in Event.wait(),
    Condition.wait_for(), Released, and every blocking call of a socket. Code that holds it never
    sleeps, except in a signal handler that has interrupted that code."""

    def __init__(self):
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release

    def acquire(self, blocking=True, timeout=-1):
        cdef bint taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._taken()
        return taken

    def release(self):
        self.leave()

    def __enter__(self):
        self.enter()
        return True

    def __exit__(self, *error):
        self.leave()

    cdef int enter(self) except -1:
        """acquire(), for compiled callers."""
        self._acquire()
        self._taken()
        return 0

    def _is_owned(self):
        return self._mine()

    cdef bint _mine(self):
        return self._owner == me()

    cdef int _taken(self) except -1:
        self._depth += 1
        if self._depth == 1:
            self._owner = me()
            if self._owner == MAIN:
                HELD.append(self)
            else:
                more(HOLDING)
        return 0

    cdef int leave(self) except -1:
        """release(), for compiled callers."""
        if not self._mine():
            raise RuntimeError("cannot release a lock that this thread does not hold")
        self._depth -= 1
        if self._depth == 0:
            self._let_go()
        self._release()
        return 0

    def _release_save(self):
        cdef Py_ssize_t depth = self._depth
        self._depth = 0
        self._let_go()
        return depth, self._lock._release_save()

    def _acquire_restore(self, held):
        self._lock._acquire_restore(held[1])
        self._depth = held[0]
        self._owner = me()
        if self._owner == MAIN:
            HELD.append(self)
        else:
            more(HOLDING)

    cdef int _let_go(self) except -1:
        """The inner lock is about to be released."""
        cdef Py_ssize_t last
        if self._owner == MAIN:
            last = len(HELD) - 1
            if last >= 0 and HELD[last] is self:
                HELD.pop()
            elif self in HELD:      # not if this thread became the main one
                HELD.remove(self)
        else:
            less(HOLDING)
        self._owner = 0     # or this thread would own it while the next one takes it
        return 0


cdef list yield_locks():
    if not HELD or me() != MAIN:
        return None
    return [(lock, (<YieldingLock> lock)._release_save()) for lock in HELD[::-1]]


cdef int locks_back(list held) except -1:
    for lock, state in reversed(held):
        (<YieldingLock> lock)._acquire_restore(state)
    return 0


cdef class _Sleepers:
    """Who sleeps until something happens: a lock for each, which its sleeper tries to take."""

    cdef object _bells

    def __cinit__(self):
        self._bells = deque()

    cdef object enter(self):
        """The caller is awakened from now on, even if it does not sleep yet."""
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        return bell

    cdef int leave(self, object bell) except -1:
        try:
            self._bells.remove(bell)
        except ValueError:      # it rang
            pass
        return 0

    cdef int sleep(self, object bell, double seconds) except -1:
        """seconds < 0: without a limit."""
        cdef list held = yield_locks()
        try:
            bell.acquire(True, -1 if seconds < 0 or seconds > LONGEST else seconds)
        finally:
            if held is not None:
                locks_back(held)
        return 0

    cdef int wake(self) except -1:
        """All that sleep now; those that come later wait for the next time."""
        cdef Py_ssize_t n
        for n in range(len(self._bells)):
            try:
                bell = self._bells.popleft()
            except IndexError:
                break
            bell.release()
        return 0


cdef class Event:
    """threading.Event, without gevent's patches and safe against signals."""

    cdef bint _set
    cdef _Sleepers _sleepers

    def __init__(self):
        self._set = False
        self._sleepers = _Sleepers()

    def is_set(self):
        return self._set

    def set(self):
        self._set = True
        self._sleepers.wake()

    def clear(self):
        self._set = False

    def wait(self, timeout=None):
        """True once it is set; False after `timeout` seconds."""
        cdef double seconds = -1 if timeout is None else max(0.0, <double> timeout)
        if self._set:
            return True
        bell = self._sleepers.enter()
        try:
            if not self._set:       # set() may have looked before
                self._sleepers.sleep(bell, seconds)
        finally:
            self._sleepers.leave(bell)
        return self._set


cdef class Condition:
    """threading.Condition over a reentrant lock, without gevent's patches and safe against
    signals. `with condition:` holds the lock."""

    cdef readonly object lock
    cdef _Sleepers _sleepers

    def __init__(self, lock=None):
        self.lock = threading.RLock() if lock is None else lock
        self._sleepers = _Sleepers()

    def __enter__(self):
        self.lock.acquire()
        return self

    def __exit__(self, *error):
        self.lock.release()

    def wait_for(self, happened, timeout=None):
        """Until happened() is true; the lock is released while this sleeps. False after `timeout`
        seconds. A signal handler that makes it true may run at any time, also between the test and
        the sleep. This is why Condition has no wait(), which would miss that."""
        cdef double seconds = -1
        cdef double end = 0
        if timeout is not None:
            end = now_ns() / 1e9 + <double> timeout
        while True:
            bell = self._sleepers.enter()
            try:
                if happened():
                    return True
                if timeout is not None:
                    seconds = end - now_ns() / 1e9
                    if seconds <= 0:
                        return False
                held = self.lock._release_save()
                try:
                    self._sleepers.sleep(bell, seconds)
                finally:
                    self.lock._acquire_restore(held)
            finally:
                self._sleepers.leave(bell)

    def notify_all(self):
        self._sleepers.wake()


cdef class Wakeup:
    """An eventfd that is open as long as anything refers to this object: who writes needs no lock
    against its end. OSError: no descriptor is left."""

    cdef readonly int fd
    cdef object _pid

    def __cinit__(self):
        self.fd = -1

    def __init__(self):
        self._pid = os.getpid()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def write(self):
        """In a forked child nothing: it would wake the parent."""
        if self._pid == os.getpid():
            os.eventfd_write(self.fd, 1)

    def clear(self):
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass

    def abandon(self):
        """In a forked child: close now. A thread of the parent may have been inside a call here,
        and its reference is never dropped."""
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)


cdef class Released:
    """`with Released(lock):` runs without this RLock and without any YieldingLock, if the thread
    has them. For a call that waits for other threads and that a signal handler may make in the
    middle of a call that has them. None: only the latter."""

    cdef object _lock
    cdef object _held
    cdef list _yielded

    def __init__(self, lock=None):
        self._lock = lock

    def __enter__(self):
        if self._lock is not None and self._lock._is_owned():
            self._held = self._lock._release_save()
        self._yielded = yield_locks()
        return self

    def __exit__(self, *error):
        yielded, self._yielded = self._yielded, None
        held, self._held = self._held, None
        if yielded is not None:
            locks_back(yielded)
        if held is not None:
            self._lock._acquire_restore(held)


def program_ends(double lingers=0):
    """The sockets are being closed, which takes up to `lingers` seconds, or have been: from now on
    stay_asleep() does, for that long and a second, and for good once the interpreter ends."""
    global AWAKE
    AWAKE = now_ns() + LAST + <int64_t> (min(lingers, LONGEST) * 1e9)


def program_may_end():
    """The interpreter begins nothing more in threads, but other threads of the program may go on
    for long: stay_asleep() does for a second, once."""
    global AWAKE
    if AWAKE == 0:
        AWAKE = now_ns() + LAST


cpdef int stay_asleep() except -1:
    """What raises because something is closed calls this first. At the end of the program it
    returns only to the main thread, to those that others wait for, and to a thread that an atexit
    handler may be waiting for, since a second has passed."""
    if AWAKE == 0 or me() == MAIN or guest():
        return 0
    with nogil:
        while now_ns() < AWAKE or finalizing():
            if finalizing():
                pause()         # again and again: a signal interrupts it
            else:
                usleep(NAP)
    return 0


def start(thread):
    """thread.start(). The exception of a signal handler arrives as itself: the standard library
    may turn it into "release unlocked lock". Such a thread may or may not run."""
    outer = sys.exc_info()[1]       # what the caller handles, if anything
    try:
        thread.start()
    except RuntimeError as error:
        cause = error.__context__
        if cause is None or cause is outer:     # no more threads
            raise
        raise cause


def start_masked(thread):
    """start(thread), and the thread gets no signals. Those of faults it does: with them blocked the
    process would end without a message."""
    # The mask is inherited, so no signal can reach the thread before it sets its own. Not by the
    # standard library's pthread_sigmask(): it may change the mask, raise the exception of a signal
    # that came before, and the caller never learns what to restore.
    cdef sigset_t most, before
    cdef int number
    sigfillset(&most)
    for number in (SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP):
        sigdelset(&most, number)
    pthread_sigmask(SIG_BLOCK, &most, &before)
    try:
        start(thread)
    finally:
        pthread_sigmask(SIG_SETMASK, &before, NULL)


def start_behind(function, name, daemon=True):
    """Run function() on a new thread. Waits for nothing, so a finalizer may call it anywhere:
    Thread.start() waits for a lock of `threading`, which the finalizer may have interrupted.
    RuntimeError if the interpreter starts no more threads."""
    def body():
        thread = threading.Thread(target=function, name=name, daemon=daemon)
        try:
            start_masked(thread)
        except RuntimeError:    # the interpreter is shutting down
            function()

    _thread.start_new_thread(body, ())
