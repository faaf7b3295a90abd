"""The reactor for tests: pollers, mailbox and futex, seen from Python; io_bench has the I/O thread.

Where two threads must meet for a race to show, they are native ones; every wait has a limit, so
that a lost wake-up is a count in the answer and never a hang.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libcpp.atomic cimport atomic
from posix.signal cimport sigemptyset, sigset_t

from mqcore.base.clock cimport now_ns
from mqcore.reactor.epoll cimport epoll_ops
from mqcore.reactor.includes cimport EINTR, errno, close
from mqcore.reactor.mailbox cimport Mailbox, Note, mailbox_init, mailbox_put, mailbox_take
from mqcore.reactor.poller cimport READY_HUP, READY_IN, READY_OUT, PollerOps, Ready
from mqcore.reactor.wakeup cimport (
    eventfd_clear, eventfd_new, eventfd_signal, futex_wait, futex_wake,
)
from mqcore.testing.native.threads cimport pthread_create, pthread_join, pthread_t, sched_yield


IN, OUT, HUP = READY_IN, READY_OUT, READY_HUP

cdef int64_t _ns(timeout):
    return -1 if timeout is None else <int64_t> (timeout * 1e9)


# -- pollers -------------------------------------------------------------------------------------

cdef class Poller:
    """One set. Tags stand for args, which are even; tag 0 is NULL."""

    cdef const PollerOps* ops
    cdef void* set
    cdef list children

    def __cinit__(self):
        self.ops = epoll_ops()
        self.children = []
        self.set = self.ops.open()
        if self.set == NULL:
            raise OSError(errno, "open")

    def __dealloc__(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        if self.set != NULL:
            self.ops.close(self.set)
            self.set = NULL

    def add(self, int fd, size_t tag):
        if self.ops.add(self.set, fd, <void*> (2 * tag)) < 0:
            raise OSError(errno, "add")

    def remove(self, int fd):
        self.ops.remove(self.set, fd)

    def add_set(self, Poller child, size_t tag):
        self.children.append(child)
        if self.ops.add_set(self.set, child.set, <void*> (2 * tag)) < 0:
            raise OSError(errno, "add_set")

    def arm_set(self, Poller child, size_t tag, bint on):
        self.ops.arm_set(self.set, child.set, <void*> (2 * tag), on)

    def wait(self, timeout=0, int cap=64, bint open_mask=False):
        """[(tag, what)]. InterruptedError: a signal. open_mask: no signal is blocked meanwhile."""
        cdef Ready[64] found
        cdef sigset_t none
        cdef int64_t ns = _ns(timeout)
        cdef int n, i
        cdef bint interrupted
        sigemptyset(&none)
        with nogil:
            n = self.ops.wait(self.set, found, cap, ns, &none if open_mask else NULL)
            interrupted = n < 0 and errno == EINTR
        if n < 0:
            raise InterruptedError if interrupted else OSError("wait")
        return [(<size_t> found[i].arg // 2, found[i].what) for i in range(n)]


cdef struct Share:            # several threads wait on one set
    const PollerOps* ops
    void* set                 # what they wait on
    void* inner               # the set with the eventfd, if it is a child of `set`; or NULL
    atomic[uint64_t] taken
    uint64_t settled          # taken when the last edge had been
    atomic[uint32_t] stopping
    atomic[uint32_t] out


cdef void* _taker(void* argument) noexcept nogil:
    cdef Share* s = <Share*> argument
    cdef Ready[4] found
    cdef int n
    while not s.stopping.load():
        n = s.ops.wait(s.set, found, 4, LIMIT_NS, NULL)
        if n > 0 and s.inner != NULL:
            n = s.ops.wait(s.inner, found, 4, 0, NULL)
        if n > 0:
            s.taken.fetch_add(n)
    s.out.fetch_add(1)
    return NULL


cdef bint reaches(atomic[uint64_t]* word, uint64_t value) noexcept nogil:
    cdef int64_t end = now_ns() + LIMIT_NS
    while word.load() < value:
        if now_ns() > end:
            return False
        sched_yield()
    return True


cdef uint64_t _share(Share* s, int fd, int n_threads, uint64_t edges) noexcept nogil:
    """How many edges were written before one was lost (all of them, it is hoped)."""
    cdef pthread_t[MANY] threads
    cdef int i
    cdef int started = 0
    cdef uint64_t written = 0
    for i in range(n_threads):
        started += pthread_create(&threads[i], NULL, _taker, s) == 0
    while written < edges:
        eventfd_signal(fd)
        written += 1
        if not reaches(&s.taken, written):
            break
    s.settled = s.taken.load()
    s.stopping.store(1)
    while s.out.load() < <uint32_t> started:
        eventfd_signal(fd)
        sched_yield()
    for i in range(started):
        pthread_join(threads[i], NULL)
    return written


def share(int threads, uint64_t edges, bint nested=False):
    """`threads` wait on one set; an eventfd is written only when its last edge has been taken.
    (written, reported)"""
    cdef Share s
    cdef Ready[4] found
    cdef int fd = eventfd_new()
    cdef uint64_t written
    s.ops = epoll_ops()
    s.set = s.ops.open()
    s.inner = NULL
    s.taken.store(0)
    s.stopping.store(0)
    s.out.store(0)
    s.ops.add(s.set, fd, NULL)
    s.ops.wait(s.set, found, 4, 0, NULL)      # epoll: it can be written, the first edge
    if nested:
        s.inner = s.set
        s.set = s.ops.open()
        s.ops.add_set(s.set, s.inner, <void*> 1)
    with nogil:
        written = _share(&s, fd, threads, edges)
    s.ops.close(s.set)
    if nested:
        s.ops.close(s.inner)
    close(fd)
    return written, s.settled


# -- wake-ups ------------------------------------------------------------------------------------

def eventfd():
    return eventfd_new()


def signal_eventfd(int fd):
    eventfd_signal(fd)


def clear_eventfd(int fd):
    eventfd_clear(fd)


cdef struct PingPong:
    atomic[uint32_t] ball
    uint32_t rounds
    uint32_t lost


cdef bint _await_ball(PingPong* p, uint32_t mine) noexcept nogil:
    """Sleep until ball % 2 is mine."""
    cdef int64_t end = now_ns() + LIMIT_NS
    cdef uint32_t seen = p.ball.load()
    while seen % 2 != mine:
        futex_wait(&p.ball, seen, LIMIT_NS)
        seen = p.ball.load()
        if now_ns() > end:
            p.lost += 1
            return False
    return True


cdef void _play(PingPong* p, uint32_t mine) noexcept nogil:
    cdef uint32_t i
    for i in range(p.rounds):
        if not _await_ball(p, mine):
            return
        p.ball.fetch_add(1)
        futex_wake(&p.ball, 1)


cdef void* _other_player(void* argument) noexcept nogil:
    _play(<PingPong*> argument, 1)
    return NULL


def futex_ping_pong(uint32_t rounds):
    """Two threads wake each other in turn. (balls played, wake-ups lost)"""
    cdef PingPong p
    cdef pthread_t other
    p.ball.store(0)
    p.rounds = rounds
    p.lost = 0
    with nogil:
        if pthread_create(&other, NULL, _other_player, &p) == 0:
            _play(&p, 0)
            pthread_join(other, NULL)
    return p.ball.load(), p.lost


def futex_sleep(uint32_t value, uint32_t seen, double timeout):
    """The duration, in seconds, of a wait that no thread ends."""
    cdef atomic[uint32_t] word
    cdef int64_t ns = <int64_t> (timeout * 1e9)
    cdef int64_t start = now_ns()
    word.store(value)
    with nogil:
        futex_wait(&word, seen, ns)
    return (now_ns() - start) * 1e-9


# -- mailbox -------------------------------------------------------------------------------------

cdef class Box:
    cdef Mailbox box

    def __cinit__(self):
        if mailbox_init(&self.box) < 0:
            raise OSError(errno, "mailbox")

    def __dealloc__(self):
        self.take()
        close(self.box.fd)

    def fileno(self):
        return self.box.fd

    def put(self, uint32_t kind):
        _put_note(&self.box, kind)

    def take(self):
        cdef Note* note = mailbox_take(&self.box)
        cdef Note* following
        kinds = []
        while note != NULL:
            following = note.next
            kinds.append(note.kind)
            free(note)
            note = following
        return kinds


cdef void _put_note(Mailbox* box, uint32_t kind) noexcept nogil:
    cdef Note* note = <Note*> malloc(sizeof(Note))
    if note != NULL:
        note.kind = kind
        mailbox_put(box, note)


cdef struct BoxStress:
    Mailbox box
    uint32_t each
    atomic[uint32_t] next_writer
    uint32_t[MANY] seen       # notes of each writer that were read
    uint64_t wrong
    uint64_t wakes


cdef void* _box_writer(void* argument) noexcept nogil:
    cdef BoxStress* s = <BoxStress*> argument
    cdef uint32_t me = s.next_writer.fetch_add(1)
    cdef uint32_t i
    for i in range(s.each):
        _put_note(&s.box, me << 24 | i)
        if i % 64 == me:
            sched_yield()
    return NULL


cdef void _box_read(BoxStress* s, const PollerOps* ops, void* set, uint64_t total) noexcept nogil:
    cdef Ready[4] found
    cdef Note* note
    cdef Note* following
    cdef uint64_t got = 0
    while got < total:
        if ops.wait(set, found, 4, LIMIT_NS, NULL) == 0:
            return            # a lost wake-up: got shows it
        s.wakes += 1
        note = mailbox_take(&s.box)
        while note != NULL:
            following = note.next
            if s.seen[note.kind >> 24] != (note.kind & 0xFFFFFF):
                s.wrong += 1
            s.seen[note.kind >> 24] += 1
            got += 1
            free(note)
            note = following


def mailbox_stress(int writers, uint32_t each):
    """Many write, one sleeps in a set and reads: (notes read of each writer, out of order, times
    the reader woke)"""
    cdef BoxStress* s = <BoxStress*> calloc(1, sizeof(BoxStress))
    cdef const PollerOps* ops = epoll_ops()
    cdef void* set = ops.open()
    cdef pthread_t[MANY] threads
    cdef int i
    cdef int started = 0
    mailbox_init(&s.box)
    s.each = each
    ops.add(set, s.box.fd, NULL)
    with nogil:
        for i in range(writers):
            started += pthread_create(&threads[i], NULL, _box_writer, s) == 0
        _box_read(s, ops, set, <uint64_t> started * each)
        for i in range(started):
            pthread_join(threads[i], NULL)
    ops.close(set)
    close(s.box.fd)
    result = [s.seen[i] for i in range(started)], s.wrong, s.wakes
    free(s)
    return result
