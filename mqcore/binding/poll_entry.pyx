"""One socket in a PollSet: its ring, and what the last look found. See poll_set.pyx."""

cimport cython
from libc.stdint cimport uint32_t

from mqcore.binding.core cimport SocketCore
from mqcore.reactor.includes cimport close as close_fd, sched_yield
from mqcore.sock.notify cimport arm, bell_ring, disarm, ring_pin
from mqcore.sock.sock cimport (
    BELL_AWAKE, NOTIFIER_FREE, NOTIFIER_RING, NOTIFIERS, Bell, Sock, sock_enter, sock_leave,
)
from mqcore.sock.watch cimport watch_beside
from mqcore.spi.pattern cimport op_refuse

import weakref


@cython.no_gc_clear
cdef class PollBell:
    """The bell's memory: of a set and of each ring that may ring it. It keeps the set's entries,
    each by the one before. No list does: the garbage collector may empty that first, and then free
    rings that are at a socket or on the stack."""

    def __cinit__(self):
        self.bell.fd = -1

    def __dealloc__(self):
        self.shut()

    cdef void keep(self, PollEntry entry) noexcept:
        entry.after = self.first
        if entry.after is not None:
            entry.after.before = <void*> entry
        self.first = entry
        entry.kept = True

    cdef void drop(self, PollEntry entry) noexcept:
        """Idempotent. The ring is off the socket and the stack."""
        if not entry.kept:
            return
        if entry.after is not None:
            entry.after.before = entry.before
        if entry.before == NULL:
            self.first = entry.after
        else:
            (<PollEntry> entry.before).after = entry.after
        entry.before = NULL
        entry.after = None
        entry.kept = False

    cdef void leave_all(self) noexcept:
        cdef PollEntry entry = self.first
        while entry is not None:
            entry.leave()
            entry = entry.after

    cdef void drop_all(self) noexcept:
        while self.first is not None:
            self.drop(self.first)

    cdef void shut(self) noexcept:
        """No thread wakes a poller here any more."""
        if self.bell.fd >= 0:
            close_fd(self.bell.fd)
        self.bell.fd = -1


cdef void bell_awake(Bell* bell) noexcept nogil:
    if bell.asleep.exchange(BELL_AWAKE) == BELL_AWAKE:
        while bell.waking.load():
            sched_yield()


class Gone(weakref.ref):
    """A weak reference to a socket that takes its ring away before the socket's memory goes."""
    __slots__ = ("entry",)


def gone(ref):
    (<PollEntry> ref.entry).leave()


@cython.no_gc_clear           # the ring must be off the socket before its memory goes
cdef class PollEntry:
    """A socket in a set. The object that poll() reports is the core itself, or one of another
    interface, which `_now()` asks for its bits and which may open another core meanwhile."""

    cdef object alive(self):
        """The object; None: it has gone, or the ring has been taken away."""
        if not self.held:
            return None
        return self.obj if self.obj is not None else self.ref()

    cdef int join(self, SocketCore core) except -1:
        """Take a place at the socket, and ring: the next poll looks at it."""
        cdef Sock* s
        cdef int i
        cdef int place = -1
        op_refuse()
        core.check()
        s = core.s
        self.ring.bell = &self.bell.bell
        self.ring.entry = <void*> self
        self.ring.s = s
        sock_enter(s)
        for i in range(NOTIFIERS):
            if s.notifiers[i].fd == NOTIFIER_FREE:
                s.notifiers[i].ring = &self.ring
                s.notifiers[i].fd = NOTIFIER_RING
                s.rings.fetch_or(<uint32_t> 1 << i)
                place = i
                break
        sock_leave(s, True)
        if place < 0:
            return 1
        self.plane = core.plane
        self.place = place
        self.held = True
        self.pending = True
        bell_ring(&self.ring)
        return 0

    cdef void leave(self) noexcept:
        """Give the place back. Idempotent. The ring may still be on the bell's stack. The garbage
        collector may have ended the weak reference of a socket that is still there."""
        cdef Sock* s
        if not self.held:
            return
        self.held = False
        s = ring_pin(&self.ring) if not self.plane.forked else NULL
        if s != NULL:
            if disarm(s, self.place):
                self.pending = False
            sock_enter(s)
            s.notifiers[self.place].ring = NULL
            s.notifiers[self.place].fd = NOTIFIER_FREE
            s.rings.fetch_and(~(<uint32_t> 1 << self.place))
            sock_leave(s, True)
            s.users.fetch_sub(1)
        self.plane = None
        self.core = None
        self.obj = None
        self.ref = None

    cdef int look(self, obj) except -1:
        """Arm, and look. A ring that was armed before still is, or has rung since: then the next
        harvest finds it on the stack and looks again."""
        self.seen = self.ring.s.change.load()
        if not self.pending:
            self.pending = True
            arm(self.ring.s, self.place)
        if self.foreign:
            self.bits = obj._now() & self.want
        else:
            self.bits = (<SocketCore> obj).can_of(self.want)
        return self.bits

    cdef void watch(self) noexcept:
        """Not ready, armed, and no thread leads for this set: the I/O thread reads incoming
        data."""
        watch_beside(self.ring.s)
