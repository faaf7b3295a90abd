"""A message engine that is all requests and reports, for tests of the interface: a set of
descriptors, a timer, a rate limit, losses by source, and an end that takes time.

A `Pulse` is the test's handle: it says what the engine does next and counts what the host calls.
"""

from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libcpp.atomic cimport atomic

from mqcore.base.message cimport Msg, msg_close, msg_init_copy
from mqcore.base.status cimport MQ_AGAIN, MQ_NOMEM, MQ_OK
from mqcore.reactor.includes cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, close,
    epoll_create1, epoll_ctl, epoll_event, eventfd,
)
from mqcore.reactor.wakeup cimport eventfd_signal
from mqcore.spi.message_engine cimport (
    ENGINE_SET, ENGINE_UNRELIABLE, MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps,
    NativeEngine, native_engine,
)

cdef struct Control:          # shared by the test's thread and the engine's
    atomic[int64_t] reads     # calls of read
    atomic[int64_t] written   # messages taken by write
    atomic[int64_t] give      # messages to be read
    atomic[int64_t] period    # ns: each read asks to be called again after that; 0: it does not
    atomic[int64_t] refusals  # how often write is refused by the rate limit
    atomic[int64_t] lose      # units to report as lost
    atomic[int64_t] unflushed # what `pending` says; each read flushes one
    atomic[int64_t] finished
    int[2] bells

cdef struct Beat:
    MessageEngine head
    Control* control


cdef int _start(MessageEngine* self) noexcept nogil:
    return MQ_OK


cdef void _fini(MessageEngine* self) noexcept nogil:
    close(self.wake)
    free(self)


cdef int _read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Control* c = (<Beat*> self).control
    cdef int64_t lose = c.lose.exchange(0)
    c.reads.fetch_add(1)
    if c.unflushed.load() > 0:
        c.unflushed.fetch_sub(1)
    self.again = c.period.load()
    if lose:
        self.lost = lose
        snprintf(self.lost_from, sizeof(self.lost_from), b"source %lld", <long long> lose)
        return MQ_OK
    while n[0] < cap and c.give.load() > 0:
        if msg_init_copy(&out[n[0]], self.pool, b"beat", 4):
            return MQ_NOMEM
        c.give.fetch_sub(1)
        n[0] += 1
    return MQ_OK if c.give.load() > 0 else MQ_AGAIN


cdef int _write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef Control* c = (<Beat*> self).control
    cdef size_t i
    if c.refusals.load() > 0:
        c.refusals.fetch_sub(1)
        self.again = 200000
        return MQ_AGAIN
    for i in range(n):
        msg_close(&parts[i])
    c.written.fetch_add(1)
    return MQ_OK


cdef int64_t _pending(MessageEngine* self) noexcept nogil:
    cdef Control* c = (<Beat*> self).control
    if c.unflushed.load() > 0:
        self.again = 200000
    return c.unflushed.load()


cdef void _finish(MessageEngine* self) noexcept nogil:
    (<Beat*> self).control.finished.fetch_add(1)


cdef MessageEngineOps OPS
OPS.abi = MESSAGE_ENGINE_ABI
OPS.flags = ENGINE_SET | ENGINE_UNRELIABLE
OPS.start = _start
OPS.fini = _fini
OPS.read = _read
OPS.write = _write
OPS.pending = _pending
OPS.finish = _finish


cdef class Pulse:
    """Outlives its engine: close the socket first."""
    cdef Control* c

    def __cinit__(self):
        cdef int i
        self.c = <Control*> calloc(1, sizeof(Control))
        if self.c == NULL:
            raise MemoryError()
        for i in range(2):
            self.c.bells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)

    def __dealloc__(self):
        free(self.c)

    def close(self) -> None:
        """The engine's end is before that."""
        cdef int i
        for i in range(2):
            close(self.c.bells[i])

    def engine(self) -> NativeEngine:
        """An engine that watches the first bell."""
        cdef Beat* b = <Beat*> calloc(1, sizeof(Beat))
        if b == NULL:
            raise MemoryError()
        b.head.ops = &OPS
        b.head.wake = epoll_create1(EPOLL_CLOEXEC)
        b.head.more[0] = self.c.bells[0]
        b.head.more[1] = self.c.bells[1]
        b.control = self.c
        self.watch(b.head.wake, 0, True)
        self.set = b.head.wake
        return native_engine(&b.head)

    cdef int set

    cdef void watch(self, int set, int bell, bint on):
        cdef epoll_event ev
        ev.events = EPOLLIN
        ev.data.ptr = NULL
        epoll_ctl(set, EPOLL_CTL_ADD if on else EPOLL_CTL_DEL, self.c.bells[bell], &ev)

    def change(self, int bell, bint on) -> None:
        """Change the engine's interest in one of the two bells."""
        self.watch(self.set, bell, on)

    def ring(self, int bell) -> None:
        eventfd_signal(self.c.bells[bell])

    def descriptors(self) -> list[int]:
        return [self.set, self.c.bells[0], self.c.bells[1]]

    def do(self, int64_t give=0, int64_t lose=0) -> None:
        self.c.give.fetch_add(give)
        self.c.lose.fetch_add(lose)

    def set_up(self, double period=0.0, int64_t refusals=0, int64_t unflushed=0) -> None:
        self.c.period.store(<int64_t> (period * 1e9))
        self.c.refusals.store(refusals)
        self.c.unflushed.store(unflushed)

    @property
    def reads(self) -> int:
        return self.c.reads.load()

    @property
    def written(self) -> int:
        return self.c.written.load()

    @property
    def unflushed(self) -> int:
        return self.c.unflushed.load()

    @property
    def finished(self) -> int:
        return self.c.finished.load()
