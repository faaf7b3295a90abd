"""The I/O thread for tests: posts, timers, ticks and harvests, driven from Python."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libcpp.atomic cimport atomic

from mqcore.base.clock cimport now_ns
from mqcore.reactor.includes cimport close, errno
from mqcore.reactor.io_thread cimport (
    IoThread, Task, Tick, Watch, io_free, io_new, io_post, io_start, io_stop, io_sync, io_tick,
    io_timer, io_watch,
)
from mqcore.reactor.epoll cimport epoll_ops
from mqcore.reactor.poller cimport PollerOps, Ready
from mqcore.reactor.wakeup cimport eventfd_new, eventfd_signal
from mqcore.testing.native.reactor_bench cimport MANY, reaches
from mqcore.testing.native.threads cimport pthread_create, pthread_join, pthread_t, sched_yield


cdef inline int64_t _ns(seconds):
    return <int64_t> (seconds * 1e9)


cdef struct Fired:
    uint64_t tag              # what it was armed with
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


cdef void _fired(void* arg, uint64_t tag, IoThread* io) noexcept nogil:
    cdef Fired* f = <Fired*> arg
    f.at = now_ns() if tag == f.tag else 0
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
        a.timers[i].tag = i
        io_timer(io, a.timers[i].when, _fired, &a.timers[i], i)


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

    def __cinit__(self):
        self.wake = -1
        self.io = io_new(epoll_ops())
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
                if not reaches(&f.seen, i + 1):
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
            all_fired = reaches(&a.fired, a.n)
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
            reaches(&t.runs, n)
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
            came = reaches(&self.nested.edges, n)
        return came

    @property
    def harvested(self):
        return self.nested.edges.load(), self.nested.calls.load()
