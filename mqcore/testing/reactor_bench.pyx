"""The reactor for tests: pollers, mailbox, futex and I/O thread, seen from Python.

Where two threads must meet for a race to show, they are native ones; every wait has a limit, so
that a lost wake-up is a count in the answer and never a hang.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libcpp.atomic cimport atomic
from posix.signal cimport sigset_t

from mqcore.base.clock cimport now_ns
from mqcore.reactor.epoll cimport epoll_ops
from mqcore.reactor.includes cimport EINTR, errno, close, sigemptyset
from mqcore.reactor.io_thread cimport (
    IoThread, Task, Tick, Watch, io_free, io_new, io_post, io_start, io_stop, io_sync, io_tick,
    io_timer, io_watch,
)
from mqcore.reactor.mailbox cimport Mailbox, Note, mailbox_init, mailbox_put, mailbox_take
from mqcore.reactor.poll cimport poll_ops
from mqcore.reactor.poller cimport READY_HUP, READY_IN, READY_OUT, PollerOps, Ready
from mqcore.reactor.wakeup cimport (
    eventfd_clear, eventfd_new, eventfd_signal, futex_wait, futex_wake,
)
from mqcore.testing.threads cimport pthread_create, pthread_join, pthread_t, sched_yield


IN, OUT, HUP = READY_IN, READY_OUT, READY_HUP

cdef enum:
    MANY = 16                 # native threads at most
    LIMIT_NS = 10000000000    # nothing here takes so long unless it is lost


cdef const PollerOps* _ops(str name) except NULL:
    if name == "epoll":
        return epoll_ops()
    if name == "poll":
        return poll_ops()
    raise ValueError(name)


cdef int64_t _ns(timeout):
    return -1 if timeout is None else <int64_t> (timeout * 1e9)


# -- pollers -------------------------------------------------------------------------------------

cdef class Poller:
    """One set. Tags stand for args; tag 0 is NULL."""

    cdef const PollerOps* ops
    cdef void* set
    cdef list children

    def __cinit__(self, str name):
        self.ops = _ops(name)
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
        if self.ops.add(self.set, fd, <void*> tag) < 0:
            raise OSError(errno, "add")

    def remove(self, int fd):
        self.ops.remove(self.set, fd)

    def rearm(self, int fd, uint32_t what):
        if self.ops.rearm != NULL:
            self.ops.rearm(self.set, fd, what)

    def add_set(self, Poller child, size_t tag):
        self.children.append(child)
        if self.ops.add_set(self.set, child.set, <void*> tag) < 0:
            raise OSError(errno, "add_set")

    def arm_set(self, Poller child, size_t tag, bint on):
        self.ops.arm_set(self.set, child.set, <void*> tag, on)

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
        return [(<size_t> found[i].arg, found[i].what) for i in range(n)]


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


cdef bint _reaches(atomic[uint64_t]* word, uint64_t value) noexcept nogil:
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
        if not _reaches(&s.taken, written):
            break
    s.settled = s.taken.load()
    s.stopping.store(1)
    while s.out.load() < <uint32_t> started:
        eventfd_signal(fd)
        sched_yield()
    for i in range(started):
        pthread_join(threads[i], NULL)
    return written


def share(str name, int threads, uint64_t edges, bint nested=False):
    """`threads` wait on one set; an eventfd is written only when its last edge has been taken.
    (written, reported)"""
    cdef Share s
    cdef Ready[4] found
    cdef int fd = eventfd_new()
    cdef uint64_t written
    s.ops = _ops(name)
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
    """Seconds that a wait took which nobody ends."""
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


def mailbox_stress(str name, int writers, uint32_t each):
    """Many write, one sleeps in a set and reads: (notes read of each writer, out of order, times
    the reader woke)"""
    cdef BoxStress* s = <BoxStress*> calloc(1, sizeof(BoxStress))
    cdef const PollerOps* ops = _ops(name)
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


# -- I/O thread ----------------------------------------------------------------------------------

cdef struct Fired:
    int64_t when
    int64_t at
    atomic[uint64_t]* count
    uint64_t place            # fired as the how-manieth


cdef struct Facts:            # a task, and what its posters want it to see
    Task task
    atomic[uint64_t] wanted
    atomic[uint64_t] seen


cdef struct Posting:
    IoThread* io
    Facts* facts
    int n_facts
    uint32_t each
    atomic[uint32_t] next_poster


cdef struct TickState:
    Tick tick
    atomic[uint64_t] runs
    uint64_t wanted
    int64_t first
    int64_t last


cdef void _see(Task* task, IoThread* io) noexcept nogil:
    cdef Facts* f = <Facts*> task
    f.seen.store(f.wanted.load())


cdef void* _poster(void* argument) noexcept nogil:
    cdef Posting* p = <Posting*> argument
    cdef uint32_t me = p.next_poster.fetch_add(1)
    cdef uint32_t i
    cdef Facts* f
    for i in range(p.each):
        f = &p.facts[(me + i) % p.n_facts]
        f.wanted.fetch_add(1)
        io_post(p.io, &f.task)
        if i % 128 == me:
            sched_yield()
    return NULL


cdef void _fired(void* arg, IoThread* io) noexcept nogil:
    cdef Fired* f = <Fired*> arg
    f.at = now_ns()
    f.place = f.count.fetch_add(1)


cdef struct Arming:
    Task task
    Fired* timers
    size_t n
    atomic[uint64_t] fired


cdef void _arm_all(Task* task, IoThread* io) noexcept nogil:
    cdef Arming* a = <Arming*> task
    cdef int64_t now = now_ns()
    cdef size_t i
    for i in range(a.n):
        a.timers[i].when += now
        a.timers[i].count = &a.fired
        io_timer(io, a.timers[i].when, _fired, &a.timers[i])


cdef bint _one_tick(Tick* tick, IoThread* io) noexcept nogil:
    cdef TickState* t = <TickState*> tick.arg
    t.last = now_ns()
    if t.first == 0:
        t.first = t.last
    return t.runs.fetch_add(1) + 1 < t.wanted


cdef void _list_tick(Task* task, IoThread* io) noexcept nogil:
    io_tick(io, <Tick*> task.arg)


cdef void _count_harvest(Watch* watch) noexcept nogil:
    cdef Nested* nested = <Nested*> watch.arg
    cdef Ready[8] found
    cdef int n = watch.io.poller.wait(watch.set, found, 8, 0, NULL)
    if n > 0:
        nested.edges.fetch_add(n)
    nested.calls.fetch_add(1)


cdef struct Nested:
    Watch watch
    atomic[uint64_t] edges
    atomic[uint64_t] calls


cdef class Io:
    """An I/O thread that runs. Ends with close(), or with the object."""

    cdef IoThread* io
    cdef Nested* nested
    cdef int wake

    def __cinit__(self, str name):
        self.wake = -1
        self.io = io_new(_ops(name))
        if self.io == NULL or io_start(self.io):
            raise OSError(errno, "I/O thread")

    def __dealloc__(self):
        self.close()

    def close(self):
        """Stop and free; nothing else may be called after it."""
        if self.io == NULL:
            return
        self.stop()
        if self.nested != NULL:
            self.io.poller.close(self.nested.watch.set)
            close(self.wake)
            free(self.nested)
            self.nested = NULL
        io_free(self.io)
        self.io = NULL

    def stop(self):
        with nogil:
            io_stop(self.io)

    def sync(self):
        """Return when the thread has done all that it had in hand."""
        with nogil:
            io_sync(self.io)

    @property
    def loops(self):
        return self.io.loops.load()

    def round_trips(self, uint32_t n):
        """Post a task, wait until it has run, n times, mostly to a thread that sleeps. How many
        came back."""
        cdef Facts* f = <Facts*> calloc(1, sizeof(Facts))
        cdef uint32_t i
        cdef uint32_t done = 0
        f.task.run = _see
        with nogil:
            for i in range(n):
                f.wanted.fetch_add(1)
                io_post(self.io, &f.task)
                if not _reaches(&f.seen, i + 1):
                    break
                done += 1
            io_sync(self.io)
        free(f)
        return done

    def posts(self, int posters, int tasks, uint32_t each):
        """Threads post the same few tasks over and over. [(facts left, facts seen)] by task."""
        cdef Posting p
        cdef pthread_t[MANY] threads
        cdef int i
        cdef int started = 0
        p.io = self.io
        p.facts = <Facts*> calloc(tasks, sizeof(Facts))
        p.n_facts = tasks
        p.each = each
        p.next_poster.store(0)
        for i in range(tasks):
            p.facts[i].task.run = _see
        with nogil:
            for i in range(posters):
                started += pthread_create(&threads[i], NULL, _poster, &p) == 0
            for i in range(started):
                pthread_join(threads[i], NULL)
            io_sync(self.io)  # one batch later everything posted before has run
        result = [(p.facts[i].wanted.load(), p.facts[i].seen.load()) for i in range(tasks)]
        free(p.facts)
        return result

    def timers(self, list delays):
        """Arm them together; [(when, fired at, place)] in seconds; None: some never fired."""
        cdef Arming* a = <Arming*> calloc(1, sizeof(Arming))
        cdef size_t i
        cdef bint all_fired
        a.n = len(delays)
        a.timers = <Fired*> calloc(a.n, sizeof(Fired))
        a.task.run = _arm_all
        for i in range(a.n):
            a.timers[i].when = _ns(delays[i])
        with nogil:
            io_post(self.io, &a.task)
            all_fired = _reaches(&a.fired, a.n)
            io_sync(self.io)
        result = None
        if all_fired:
            result = [(a.timers[i].when * 1e-9, a.timers[i].at * 1e-9, a.timers[i].place)
                      for i in range(a.n)]
            free(a.timers)
            free(a)
        return result

    def ticks(self, uint64_t n):
        """A tick that wants n calls: (calls it got, seconds from the first to the last)."""
        cdef TickState* t = <TickState*> calloc(1, sizeof(TickState))
        cdef Task* task = <Task*> calloc(1, sizeof(Task))
        t.tick.run = _one_tick
        t.tick.arg = t
        t.wanted = n
        task.run = _list_tick
        task.arg = &t.tick
        with nogil:
            io_post(self.io, task)
            _reaches(&t.runs, n)
            io_sync(self.io)
        result = t.runs.load(), (t.last - t.first) * 1e-9
        free(t)
        free(task)
        return result

    def watch(self):
        """Nest a set with an eventfd (NULL arg, never read) in the thread's set."""
        cdef Ready[4] found
        cdef const PollerOps* ops = self.io.poller
        self.nested = <Nested*> calloc(1, sizeof(Nested))
        self.nested.watch.set = ops.open()
        self.nested.watch.harvest = _count_harvest
        self.nested.watch.arg = self.nested
        self.wake = eventfd_new()
        ops.add(self.nested.watch.set, self.wake, NULL)
        ops.wait(self.nested.watch.set, found, 4, 0, NULL)
        if io_watch(self.io, &self.nested.watch) < 0:
            raise OSError(errno, "watch")

    def unwatch(self):
        """Close the set that watch() made while the thread may look at it."""
        cdef const PollerOps* ops = self.io.poller
        with nogil:
            ops.arm_set(self.io.set, self.nested.watch.set, &self.nested.watch, False)
            io_sync(self.io)
            ops.close(self.nested.watch.set)
            close(self.wake)
        free(self.nested)
        self.nested = NULL

    def arm(self, bint on):
        self.io.poller.arm_set(self.io.set, self.nested.watch.set, &self.nested.watch, on)

    def edge(self):
        eventfd_signal(self.wake)

    def edges(self, uint64_t n):
        """True once n edges have been harvested."""
        cdef bint came
        with nogil:
            came = _reaches(&self.nested.edges, n)
        return came

    @property
    def harvested(self):
        return self.nested.edges.load(), self.nested.calls.load()
