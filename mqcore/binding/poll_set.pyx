"""PollSet: sockets that are polled again and again, at the cost of those that changed.

Each socket has a ring of the set's (notify.pxd). A poll takes the rings that rang, and looks at
their sockets and at those that were ready the last time; all others are armed, and ring when they
change. A look arms the ring first, so what comes after the look rings again. Between two polls a
socket also rings when a call used it.

A socket that was alone ready in the last two polls is led: the poller sleeps in its epoll set as a
blocked receive does, so no thread stands between the kernel and the poll. For all others the I/O
thread reads. Rings of others wake a poller that leads as they wake any call that waits there.

Any thread may add, modify and remove under the set's lock. One call polls at a time.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.clock cimport now_ns
from mqcore.base.waits cimport YieldingLock, locks_back, stay_asleep, yield_locks
from mqcore.base.widen cimport SLICE_NS, widen
from mqcore.reactor.wakeup cimport eventfd_clear, eventfd_new, futex_wait
from mqcore.sock.batching cimport batch_settle
from mqcore.binding.core cimport SocketCore
from mqcore.binding.poll_entry cimport PollBell, PollEntry, bell_awake
from mqcore.sock.notify cimport bell_ring, bell_wake, disarm
from mqcore.sock.sock cimport (
    BELL_AWAKE, BELL_FD, BELL_FUTEX, BELL_LEADS, NOTIFIERS, Bell, Ring, Sock,
)
from mqcore.sock.wait cimport sock_wait
from mqcore.spi.pattern cimport op_pay

import os

from mqcore.base.living import Living
from mqcore.base.native import threading
from mqcore.base.virtual import look_until, world

from mqcore.errors import SocketClosed, UsageError
from mqcore.binding import blocking
from mqcore.binding.poll_entry import Gone, gone

cdef enum:
    STREAK = 2                # polls in a row that a socket was alone ready in before it is led


cdef object SETS = Living()   # those whose owners can do without them for a while


def _index(PollEntry entry):
    return entry.index


@cython.no_gc_clear
cdef class PollSet:
    """`told`: what poll() says for each combination of bits; None: the bits. `kind`: the class of
    the sockets. `usual`: what is wanted where match() finds nothing said. `spare`: the set may be
    closed by another one that needs a place at one of its sockets, while no call uses it."""
    cdef PollBell bell
    cdef tuple told
    cdef object kind, usual
    cdef YieldingLock lock
    cdef object pid
    cdef dict entries         # by index
    cdef list order           # of match(): entries as they were added; None: not kept
    cdef list looks           # entries to look at
    cdef list firsts          # an entry of each context; None: find them out
    cdef PollEntry last       # alone ready at the last poll
    cdef uint32_t streak      # so often in a row
    cdef atomic[uint32_t] busy
    cdef bint spare
    cdef readonly bint closed
    cdef bint nudged
    cdef readonly object culprit   # whose look raised
    cdef object __weakref__

    def __init__(self, kind=SocketCore, tuple told=None, usual=None, bint spare=False, lock=None):
        self.bell = PollBell()
        self.kind = kind
        self.told = told
        self.usual = usual
        self.lock = YieldingLock() if lock is None else lock
        self.pid = os.getpid()
        self.entries = {}
        self.order = []
        self.looks = []
        self.spare = spare
        if spare:
            SETS.add(self)

    def __dealloc__(self):
        if self.bell is not None and not self.closed:
            self.end()

    # -- what is in it -----------------------------------------------------------------------------

    def add(self, Py_ssize_t index, obj, SocketCore core not None, wanted, bint weak=False):
        """Returns the entry. `index`: its rank among the results. `weak`: the set does not keep
        the object alive."""
        cdef PollEntry entry = PollEntry.__new__(PollEntry)
        entry.index = index
        entry.wanted = wanted
        entry.want = int(wanted) if isinstance(wanted, int) else wanted.value
        entry.bell = self.bell
        entry.foreign = obj is not core
        entry.at = <void*> obj
        with self.lock:
            self.bell.keep(entry)
            if weak:
                entry.ref = Gone(obj, gone)
                entry.ref.entry = entry
            else:
                entry.obj = obj
            if entry.foreign:
                entry.core = core
            self.entries[index] = entry
            if self.order is not None:
                self.order.append(entry)
            try:
                if entry.join(core):
                    for other in SETS:
                        (<PollSet> other).spare_places()
                    if entry.join(core):
                        raise UsageError(f"more than {NOTIFIERS} loops and pollers wait on one "
                                         "socket")
            except BaseException:
                self.remove(entry)
                raise
            self.firsts = None
        return entry

    def modify(self, PollEntry entry not None, wanted):
        """Wait for something else at this socket."""
        with self.lock:
            entry.wanted = wanted
            entry.want = int(wanted) if isinstance(wanted, int) else wanted.value
            if entry.alive() is not None and entry.ring.s.armed.fetch_and(
                    ~(<uint32_t> 1 << entry.place)) & (<uint32_t> 1 << entry.place):
                bell_ring(&entry.ring)
            else:
                bell_wake(&self.bell.bell)    # it is looked at, or led

    def remove(self, PollEntry entry not None):
        """Forget this socket."""
        with self.lock:
            if self.closed:     # by a signal handler, in the middle of the call that removes it
                return
            entry.leave()
            self.take()
            self.bell.drop(entry)
            if entry.listed:
                self.looks.remove(entry)
                entry.listed = False
            if self.last is entry:
                self.last = None
            self.order = None
            self.firsts = None
            self.entries.pop(entry.index, None)

    def match(self, items):
        """Whether the sockets among these, a list or tuple of objects and (object, what is wanted),
        are the set's, in the order in which they were added: [(index, item)] of the others; None:
        they are not."""
        cdef list rest = []
        cdef Py_ssize_t i
        cdef Py_ssize_t k = 0
        cdef Py_ssize_t n
        cdef PollEntry entry
        cdef object wanted
        if self.order is None or self.closed:
            return None
        n = len(self.order)
        for i in range(len(items)):
            one = items[i]
            wanted = self.usual
            if type(one) is tuple and len(<tuple> one) == 2:
                wanted = (<tuple> one)[1]
                one = (<tuple> one)[0]
            if not isinstance(one, self.kind):
                rest.append((i, items[i]))
                continue
            if k == n:
                return None
            entry = <PollEntry> self.order[k]
            if (entry.at != <void*> one or entry.index != i or not entry.held
                    or entry.wanted is not wanted and not (type(wanted) is int
                                                           and wanted == entry.wanted)):
                return None
            k += 1
        return rest if k == n else None

    def spare_places(self):
        """Give all places back if no call uses the set. It is closed then."""
        if not self.busy.exchange(1):
            self.end()
            self.busy.store(0)

    def close(self):
        """Idempotent; not while a call uses it."""
        self.end()

    cdef void end(self) noexcept:
        self.closed = True
        self.bell.leave_all()
        self.take()
        self.bell.drop_all()
        self.entries.clear()
        self.order = None
        self.looks.clear()
        self.firsts = None
        self.last = None
        self.bell.shut()

    # -- looking -----------------------------------------------------------------------------------

    cdef int take(self) except -1:
        """What rang is to be looked at."""
        cdef Ring* ring = self.bell.bell.rung.exchange(NULL)
        cdef PollEntry entry
        while ring != NULL:
            entry = <PollEntry> ring.entry
            ring = ring.next
            entry.pending = False
            if entry.held and not entry.listed:
                entry.listed = True
                self.looks.append(entry)
        return 0

    cdef list looked(self, bint leads):
        """harvest(), under the lock."""
        self.lock.enter()
        try:
            return self.harvest(leads)
        except SocketClosed as error:
            closed = error          # raised without the lock
        finally:
            self.lock.leave()
        stay_asleep()
        raise closed

    cdef list harvest(self, bint leads):
        """The entries that are ready. leads: the caller sleeps if there are none, in the socket
        that is led perhaps."""
        cdef list found = []
        cdef list kept = []
        cdef PollEntry entry
        cdef object obj
        if self.bell.bell.rung.load() != NULL:
            self.take()
        for entry in self.looks:
            obj = entry.alive()
            if obj is None:
                entry.listed = False
                continue
            try:
                entry.look(obj)
                if entry.foreign and obj._core is not entry.core:
                    self.reopened(entry, obj)
            except BaseException:
                self.culprit = obj
                self.look_again()
                raise
            if entry.bits:
                found.append(entry)
                kept.append(entry)
            elif leads and self.leads(entry):
                kept.append(entry)
            else:
                entry.watch()
                entry.listed = False
        self.looks = kept
        if len(found) > 1:
            found.sort(key=_index)
        return found

    cdef void look_again(self) noexcept:
        """A look raised: those before it count as not looked at."""
        cdef PollEntry entry
        for entry in self.looks:
            entry.listed = True

    cdef int reopened(self, PollEntry entry, obj) except -1:
        """The object has another socket inside now."""
        cdef object ref = entry.ref
        entry.leave()
        entry.core = obj._core
        if ref is None:
            entry.obj = obj
        entry.ref = ref
        self.take()               # the ring is off the stack
        if entry.join(entry.core):
            raise UsageError(f"more than {NOTIFIERS} loops and pollers wait on one socket")
        entry.look(obj)           # it rang, too: looked at once more
        return 0

    cdef inline bint leads(self, PollEntry entry) noexcept:
        return entry is self.last and self.streak >= STREAK or len(self.entries) == 1

    cdef list result(self, list found):
        cdef PollEntry entry
        cdef object obj
        cdef list out = []
        if len(found) == 1:
            entry = <PollEntry> found[0]
            self.streak = self.streak + 1 if entry is self.last else 1
            self.last = entry
        elif found:
            self.last = None
        for entry in found:
            obj = entry.alive()
            if obj is not None:
                out.append((obj, entry.bits if self.told is None else self.told[entry.bits]))
        return out

    # -- sleeping ----------------------------------------------------------------------------------

    cdef int settle(self) except -1:
        """This thread is about to sleep: what it owes at any socket of these contexts is
        written."""
        cdef PollEntry entry
        cdef set planes
        cdef object obj
        if self.firsts is None:
            self.firsts = []
            planes = set()
            for entry in self.entries.values():
                if entry.held and id(entry.plane) not in planes:
                    planes.add(id(entry.plane))
                    self.firsts.append(entry)
        for entry in self.firsts:
            obj = entry.alive()
            if obj is not None:
                batch_settle(entry.plane.plane)
        return 0

    cdef int sleep(self, int64_t deadline, bint slices) except -1:
        """Until something rang, or time is up, or to look for signals."""
        cdef Bell* bell = &self.bell.bell
        cdef PollEntry led = None
        cdef object obj = None
        cdef int64_t left = -1
        cdef uint32_t seen = 0
        cdef Sock* s = NULL
        try:
            with self.lock:
                self.settle()
                if len(self.looks) == 1:
                    led = <PollEntry> self.looks[0]
                    obj = led.alive()
                    if obj is None:
                        led = None
                if led is not None:
                    s = led.ring.s
                    s.users.fetch_add(1)
                    seen = led.seen
                    if disarm(s, led.place):  # this thread checks it when it wakes, for any reason
                        led.pending = False
                    bell.led = s
            if s != NULL:
                bell.asleep.exchange(BELL_LEADS)
                widen()
                if bell.rung.load() == NULL and not self.nudged:
                    with nogil:
                        sock_wait(s, seen, deadline, slices, False)
                bell_awake(bell)
                return 0
        finally:                  # a signal's handler may raise before the lock is given back
            if s != NULL:
                s.users.fetch_sub(1)
        if deadline >= 0:
            left = max(0, deadline - now_ns())
        if slices and (left < 0 or left > SLICE_NS):
            left = SLICE_NS
        bell.asleep.exchange(BELL_FUTEX)
        widen()
        if bell.rung.load() == NULL and not self.nudged:
            with nogil:
                futex_wait(&bell.asleep, BELL_FUTEX, left)
        bell.asleep.exchange(BELL_AWAKE)
        return 0

    def poll(self, limit):
        """[(object, what it is ready for)]; none when time is up, or when nudge() was called.
        limit: the moment on the monotonic clock, None for ever, 0 not to wait. The caller has
        claim()ed the set."""
        cdef int64_t deadline = -1 if limit is None else <int64_t> (<double> limit * 1e9)
        cdef list found
        cdef list held = None
        cdef bint slices
        cdef bint last = deadline == 0
        found = self.looked(not last)
        if found or last:
            return self.result(found)
        here = world()
        if here is not None:
            return self.result(look_until(here, self.looked, deadline))
        blocking.check(None)
        slices = threading.current_thread() is threading.main_thread()
        while True:
            if slices:
                op_pay()
                held = yield_locks()
            try:
                self.sleep(deadline, slices)
            finally:
                if held is not None:
                    locks_back(held)
            PyErr_CheckSignals()
            if slices:
                op_pay()
            last = deadline >= 0 and now_ns() >= deadline
            found = self.looked(not last)
            if found or last or self.nudged:
                self.nudged = False
                return self.result(found)

    # -- for callers that sleep on a descriptor ----------------------------------------------------

    def now(self):
        """[(index, object, what it is ready for)]."""
        cdef list found
        cdef PollEntry entry
        cdef object obj
        cdef list out = []
        found = self.looked(False)
        for entry in found:
            obj = entry.alive()
            if obj is not None:
                out.append((entry.index, obj, entry.bits if self.told is None
                            else self.told[entry.bits]))
        return out

    def fileno(self):
        """An eventfd for doze()."""
        if self.bell.bell.fd < 0:
            self.bell.bell.fd = eventfd_new()
            if self.bell.bell.fd < 0:
                raise OSError("no descriptors left for a poller")
        return self.bell.bell.fd

    def doze(self):
        """The next ring makes fileno() readable. False: something rang before, do not sleep."""
        cdef Bell* bell = &self.bell.bell
        with self.lock:
            self.settle()
        bell.asleep.exchange(BELL_FD)
        widen()
        if bell.rung.load() != NULL or self.nudged:
            bell.asleep.exchange(BELL_AWAKE)
            return False
        return True

    def wake(self, bint readable):
        """After doze(). readable: fileno() was, perhaps for nothing."""
        bell_awake(&self.bell.bell)
        self.nudged = False
        if readable:
            eventfd_clear(self.bell.bell.fd)

    # -- whose turn it is --------------------------------------------------------------------------

    @property
    def usable(self):
        """Neither closed nor of another process."""
        return not self.closed and self.pid == os.getpid()

    @property
    def taken(self):
        """A call has claim()ed the set."""
        return self.busy.load() != 0

    def claim(self):
        """False: another call uses the set, or it is not usable."""
        if not self.usable:
            return False
        self.lock.enter()       # close() is called with the lock, if the set is not claimed
        try:
            if self.busy.exchange(1):
                return False
            if self.closed:
                self.busy.store(0)
            return not self.closed
        finally:
            self.lock.leave()

    def release(self):
        """After claim(). A set that is kept in case that it is used again keeps no descriptor."""
        if self.spare:
            self.bell.shut()
        self.busy.store(0)

    def nudge(self):
        """Any thread: a poll that waits, or the next one that would, returns."""
        self.nudged = True
        widen()
        bell_wake(&self.bell.bell)

    def __len__(self):
        return len(self.entries)
