"""The I/O thread's loop: see io_thread.pxd.

The order before it sleeps is the wake-up rule: say "asleep" (seq_cst), look at the mailbox again,
sleep. A poster pushes, then looks whether somebody sleeps.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset
from posix.signal cimport sigset_t

from mqcore.base.clock cimport now_ns
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.base.widen cimport widen
from mqcore.reactor.includes cimport (
    SIG_SETMASK, close, pthread_create, pthread_join, pthread_self, pthread_setname_np,
    pthread_sigmask, sigfillset,
)
from mqcore.reactor.wakeup cimport (
    eventfd_clear, eventfd_new, eventfd_signal, futex_wait, futex_wake,
)

cdef enum:
    HARVEST = 64
    TICK_NS = 1000000
    ENDED_LOOK_NS = 10000000  # how often io_sync looks whether there is a thread at all


cdef struct SyncPoint:
    Task task
    atomic[uint32_t] word


cdef IoThread* io_new(const PollerOps* poller) noexcept nogil:
    cdef IoThread* io = <IoThread*> malloc(sizeof(IoThread))
    if io == NULL:
        return NULL
    memset(<void*> io, 0, sizeof(IoThread))
    io.poller = poller
    io.tick_ns = TICK_NS
    io.wake = eventfd_new()
    if io.wake < 0:
        free(io)
        return NULL
    io.set = poller.open()
    if io.set == NULL:
        close(io.wake)
        free(io)
        return NULL
    if poller.add(io.set, io.wake, NULL) < 0:
        io_free(io)
        return NULL
    return io


cdef int io_start(IoThread* io) noexcept nogil:
    cdef sigset_t all
    cdef sigset_t old
    cdef int rc
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &old)  # signals are for the application's threads
    rc = pthread_create(&io.thread, NULL, _main, io)
    pthread_sigmask(SIG_SETMASK, &old, NULL)
    io.started = rc == 0
    return rc


cdef void io_stop(IoThread* io) noexcept nogil:
    if not io.started:
        return
    io.stopping.store(1)
    eventfd_signal(io.wake)
    pthread_join(io.thread, NULL)
    io.started = 0


cdef void io_free(IoThread* io) noexcept nogil:
    io.poller.close(io.set)
    close(io.wake)
    free(io.timers)
    free(io)


cdef void io_abandon(IoThread* io) noexcept nogil:
    io.poller.close(io.set)
    close(io.wake)
    io.started = 0


cdef void io_wake(IoThread* io) noexcept nogil:
    if io.asleep.load() and io.asleep.exchange(0):
        eventfd_signal(io.wake)


cdef void io_post(IoThread* io, Task* task) noexcept nogil:
    cdef Task* head
    if task.queued.exchange(1):
        return
    head = io.posted.load()
    while True:
        task.next = head
        if io.posted.compare_exchange_weak(head, task):
            break
    io_wake(io)


cdef void _synced(Task* task, IoThread* io) noexcept nogil:
    cdef atomic[uint32_t]* word = <atomic[uint32_t]*> task.arg
    word.exchange(1)
    futex_wake(word, 1)


cdef void io_sync(IoThread* io) noexcept nogil:
    cdef SyncPoint* point
    if not io.started:
        return
    point = <SyncPoint*> malloc(sizeof(SyncPoint))
    if point == NULL:
        return
    memset(<void*> point, 0, sizeof(SyncPoint))
    point.task.run = _synced
    point.task.arg = &point.word
    io_post(io, &point.task)
    while point.word.load() == 0:
        if io.ended.load():
            # it left its loop meanwhile; the post is nobody's, and so is the memory
            return
        futex_wait(&point.word, 0, ENDED_LOOK_NS)
    # the I/O thread may still be inside futex_wake, which only uses the address
    free(point)


cdef int io_watch(IoThread* io, Watch* watch) noexcept nogil:
    watch.io = io
    return io.poller.add_set(io.set, watch.set, watch)


# -- timers: a binary heap, lazy: who is not interested any more ignores the call ------------------

cdef int io_timer(IoThread* io, int64_t when, void (*fire)(void*, uint64_t,
                                                           IoThread*) noexcept nogil,
                  void* arg, uint64_t tag) noexcept nogil:
    cdef Timer* grown
    cdef Timer t
    cdef size_t i, up
    if io.n_timers == io.cap_timers:
        grown = <Timer*> realloc(io.timers, (io.cap_timers * 2 + 16) * sizeof(Timer))
        if grown == NULL:
            return MQ_NOMEM
        io.timers = grown
        io.cap_timers = io.cap_timers * 2 + 16
    t.when = when
    t.arg = arg
    t.tag = tag
    t.fire = fire
    i = io.n_timers
    io.n_timers += 1
    while i > 0:
        up = (i - 1) // 2
        if io.timers[up].when <= when:
            break
        io.timers[i] = io.timers[up]
        i = up
    io.timers[i] = t
    return MQ_OK


cdef Timer _pop_timer(IoThread* io) noexcept nogil:
    cdef Timer top = io.timers[0]
    cdef Timer last
    cdef size_t i = 0, child
    io.n_timers -= 1
    last = io.timers[io.n_timers]
    while True:
        child = 2 * i + 1
        if child >= io.n_timers:
            break
        if child + 1 < io.n_timers and io.timers[child + 1].when < io.timers[child].when:
            child += 1
        if last.when <= io.timers[child].when:
            break
        io.timers[i] = io.timers[child]
        i = child
    io.timers[i] = last
    return top


cdef void _fire_timers(IoThread* io) noexcept nogil:
    cdef int64_t now
    cdef Timer t
    if io.n_timers == 0:
        return
    now = now_ns()
    while io.n_timers and io.timers[0].when <= now:
        t = _pop_timer(io)
        t.fire(t.arg, t.tag, io)


# -- ticks -----------------------------------------------------------------------------------------

cdef void io_tick(IoThread* io, Tick* tick) noexcept nogil:
    if not tick.listed:
        tick.listed = 1
        tick.next = io.ticks
        io.ticks = tick


cdef void _run_ticks(IoThread* io) noexcept nogil:
    cdef Tick* tick = io.ticks
    cdef Tick* following
    io.ticks = NULL
    while tick != NULL:
        following = tick.next
        tick.listed = 0
        if tick.run(tick, io):
            io_tick(io, tick)
        tick = following


# -- the loop --------------------------------------------------------------------------------------

cdef bint _run_posted(IoThread* io) noexcept nogil:
    cdef Task* stack = io.posted.exchange(NULL)
    cdef Task* task = NULL
    cdef Task* following
    if stack == NULL:
        return False
    while stack != NULL:        # the stack is last in first out: turn it round
        following = stack.next
        stack.next = task
        task = stack
        stack = following
    while task != NULL:
        following = task.next
        task.queued.exchange(0)
        task.run(task, io)
        task = following
    return True


cdef int64_t _patience(IoThread* io, int64_t next_tick) noexcept nogil:
    cdef int64_t now
    cdef int64_t wait = -1
    if io.ticks == NULL and io.n_timers == 0:
        return -1
    now = now_ns()
    if io.n_timers:
        wait = io.timers[0].when - now
        if wait < 0:
            wait = 0
    if io.ticks != NULL and (wait < 0 or next_tick - now < wait):
        wait = next_tick - now if next_tick > now else 0
    return wait


cdef void* _main(void* arg) noexcept nogil:
    cdef IoThread* io = <IoThread*> arg
    cdef Ready[HARVEST] found
    cdef Watch* watch
    cdef int n, i
    cdef int64_t next_tick = 0
    pthread_setname_np(pthread_self(), b"mqcore-io")
    while not io.stopping.load():
        _run_posted(io)
        if io.ticks != NULL and now_ns() >= next_tick:
            _run_ticks(io)
            next_tick = now_ns() + io.tick_ns
        _fire_timers(io)
        io.asleep.exchange(1)
        widen()
        if io.posted.load() != NULL:
            io.asleep.exchange(0)
            n = io.poller.wait(io.set, found, HARVEST, 0, NULL)
        else:
            n = io.poller.wait(io.set, found, HARVEST, _patience(io, next_tick), NULL)
            io.asleep.exchange(0)
        io.loops.fetch_add(1)
        for i in range(n):
            watch = <Watch*> found[i].arg
            if watch == NULL:
                eventfd_clear(io.wake)
            else:
                watch.harvest(watch)
    io.ended.store(1)         # nothing harvested is in our hands any more
    return NULL
