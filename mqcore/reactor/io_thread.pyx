"""The I/O thread's loop: see io_thread.pxd.

The order before it sleeps is the wake-up rule: set "asleep" (seq_cst), check the mailbox again,
sleep. A posting thread pushes, then checks for "asleep".
"""

from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset
from posix.signal cimport SIG_SETMASK, sigfillset, sigset_t

from mqcore.base.gil cimport thread_state_free, thread_state_new
from mqcore.base.includes cimport pthread_sigmask
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.base.widen cimport widen
from mqcore.reactor.includes cimport (
    PR_SET_TIMERSLACK, close, prctl, pthread_create, pthread_join, pthread_self, pthread_setname_np,
)
from mqcore.reactor.wakeup cimport (
    eventfd_clear, eventfd_new, eventfd_signal, futex_wait, futex_wake,
)

cdef enum:
    HARVEST = 64
    TASKS_NS = 25000         # for posted tasks in one turn, and as much for those put off
    HARVEST_NS = 25000       # for all sockets' edges together
    SHARE_LEAST_NS = 10000    # and for those of one at least
    TIMERS_MOST = 64
    FLUSH_NS = 100000
    BULK_NS = 500000
    LED_NS = 10000000
    LOOP_NS = 50000000
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
    io.name = b"mqcore-io"
    io.ticks[TICK_FLUSH].period = FLUSH_NS
    io.ticks[TICK_BULK].period = BULK_NS
    io.ticks[TICK_LED].period = LED_NS
    io.ticks[TICK_LOOP].period = LOOP_NS
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


cdef void io_shut(IoThread* io) noexcept nogil:
    if io.set != NULL:
        io.poller.close(io.set)
        close(io.wake)
        io.set = NULL


cdef void io_free(IoThread* io) noexcept nogil:
    io_shut(io)
    free(io.timers)
    free(io)


cdef void io_abandon(IoThread* io) noexcept nogil:
    io.poller.close(io.set)
    close(io.wake)
    io.started = 0


cdef void io_wake(IoThread* io) noexcept nogil:
    if io.asleep.load() and io.asleep.exchange(0):
        eventfd_signal(io.wake)


cdef inline void _push(atomic[Task*]* stack, Task* task) noexcept nogil:
    cdef Task* head = stack.load()
    while True:
        task.next = head
        if stack.compare_exchange_weak(head, task):
            break


cdef void io_post(IoThread* io, Task* task) noexcept nogil:
    if task.queued.exchange(1):
        return
    _push(&io.posted, task)
    io_wake(io)


cdef void io_post_later(IoThread* io, Task* task) noexcept nogil:
    if task.queued.exchange(1):
        return
    _push(&io.put_off, task)
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
            # The I/O thread has exited, so the task never runs; `point` is still linked and is
            # leaked on purpose.
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


cdef void _sift_down(IoThread* io, size_t i, Timer last) noexcept nogil:
    cdef size_t child
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


cdef Timer _pop_timer(IoThread* io) noexcept nogil:
    cdef Timer top = io.timers[0]
    io.n_timers -= 1
    _sift_down(io, 0, io.timers[io.n_timers])
    return top


cdef void io_untimer(IoThread* io, void* arg) noexcept nogil:
    cdef size_t i, n = 0
    for i in range(io.n_timers):
        if io.timers[i].arg != arg:
            io.timers[n] = io.timers[i]
            n += 1
    io.n_timers = n
    for i in range(n // 2, 0, -1):
        _sift_down(io, i - 1, io.timers[i - 1])


cdef void _fire_timers(IoThread* io) noexcept nogil:
    cdef int64_t now
    cdef Timer t
    cdef int i
    if io.n_timers == 0:
        return
    now = io_now(io)
    for i in range(TIMERS_MOST):
        if io.n_timers == 0 or io.timers[0].when > now:
            break
        t = _pop_timer(io)
        t.fire(t.arg, t.tag, io)


# -- ticks -----------------------------------------------------------------------------------------

cdef void io_tick(IoThread* io, Tick* tick) noexcept nogil:
    cdef TickList* ticks = &io.ticks[tick.which]
    if tick.listed:
        return
    if ticks.head == NULL:
        ticks.next = io_now(io) + ticks.period
    tick.listed = 1
    tick.next = ticks.head
    ticks.head = tick


cdef void io_untick(IoThread* io, Tick* tick) noexcept nogil:
    cdef Tick** at = &io.ticks[tick.which].head
    if not tick.listed:
        return
    while at[0] != tick:
        at = &at[0].next
    at[0] = tick.next
    tick.listed = 0


cdef void _run_ticks(IoThread* io, TickList* ticks) noexcept nogil:
    cdef Tick* tick = ticks.head
    cdef Tick* following
    if tick == NULL or io_now(io) < ticks.next:
        return
    ticks.head = NULL
    while tick != NULL:
        following = tick.next
        tick.listed = 0
        if tick.run(tick, io):
            io_tick(io, tick)
        tick = following
    ticks.next = io_now(io) + ticks.period


# -- the loop --------------------------------------------------------------------------------------

cdef void _append(TaskList* tasks, atomic[Task*]* from_) noexcept nogil:
    """What was posted goes behind what waits, the oldest first."""
    cdef Task* stack = from_.exchange(NULL)
    cdef Task* newest = stack
    cdef Task* oldest = NULL
    cdef Task* following
    if stack == NULL:
        return
    while stack != NULL:
        following = stack.next
        stack.next = oldest
        oldest = stack
        stack = following
    if tasks.head == NULL:
        tasks.head = oldest
    else:
        tasks.tail.next = oldest
    tasks.tail = newest


cdef void _run_tasks(IoThread* io, TaskList* tasks) noexcept nogil:
    cdef int64_t end = 0
    cdef Task* task
    while tasks.head != NULL:
        task = tasks.head
        tasks.head = task.next
        if end == 0:
            end = io_now(io) + TASKS_NS
        task.queued.exchange(0)
        task.run(task, io)
        if tasks.head != NULL and io_now(io) >= end:
            return


cdef int64_t io_due(IoThread* io) noexcept nogil:
    cdef int64_t when = INT64_MAX
    cdef int i
    if io.n_timers:
        when = io.timers[0].when
    for i in range(TICKS):
        if io.ticks[i].head != NULL and io.ticks[i].next < when:
            when = io.ticks[i].next
    return when


cdef bint _owes(IoThread* io) noexcept nogil:
    return (io.posted.load() != NULL or io.put_off.load() != NULL or io.tasks.head != NULL
            or io.later.head != NULL)


cdef int64_t _patience(IoThread* io) noexcept nogil:
    cdef int64_t when, now
    if _owes(io):
        return 0
    when = io_due(io)
    if when == INT64_MAX:
        return -1
    now = io_now(io)
    return when - now if when > now else 0


cdef int _sleep(IoThread* io, Ready* found) noexcept nogil:
    cdef int64_t patience
    cdef int n
    io.asleep.exchange(1)
    widen()
    patience = _patience(io)
    if patience == 0:
        io.asleep.exchange(0)
    n = io.poller.wait(io.set, found, HARVEST, patience, NULL)
    io.asleep.exchange(0)
    io.loops.fetch_add(1)
    return n


cdef void _harvest(IoThread* io, Ready* found, int n) noexcept nogil:
    """Sockets whose edges were soon worked off come first; the others have waited for them no
    longer than they take."""
    cdef Watch* watch
    cdef int greedy = 0
    cdef int i
    if n > 0:
        io.share = max(<int64_t> HARVEST_NS // n, <int64_t> SHARE_LEAST_NS)
    for i in range(n):
        watch = <Watch*> found[i].arg
        if watch == NULL:
            eventfd_clear(io.wake)
        elif watch.greedy:
            found[greedy].arg = watch
            greedy += 1
        else:
            watch.harvest(watch)
    for i in range(greedy):
        watch = <Watch*> found[i].arg
        watch.harvest(watch)


cdef void _turn(IoThread* io) noexcept nogil:
    cdef int i
    _append(&io.tasks, &io.posted)
    _append(&io.later, &io.put_off)
    _run_tasks(io, &io.tasks)
    _run_tasks(io, &io.later)
    for i in range(TICKS):
        _run_ticks(io, &io.ticks[i])
    _fire_timers(io)


cdef int io_step(IoThread* io) noexcept nogil:
    cdef Ready[HARVEST] found
    cdef int n
    cdef int owed = _owes(io) or io_due(io) <= io.virtual
    _turn(io)
    n = io.poller.wait(io.set, found, HARVEST, 0, NULL)
    _harvest(io, found, n)
    return owed + max(n, 0)


cdef void* _main(void* arg) noexcept nogil:
    cdef IoThread* io = <IoThread*> arg
    cdef Ready[HARVEST] found
    cdef void* state
    cdef int n
    pthread_setname_np(pthread_self(), io.name)
    prctl(PR_SET_TIMERSLACK, 1)   # ns: the kernel's usual 50 us are half of what a flush may take
    state = thread_state_new() if io.calls_python else NULL
    while not io.stopping.load():
        _turn(io)
        n = _sleep(io, found)
        _harvest(io, found, n)
    # io_sync(): no harvested event is being processed any more
    io.ended.store(1)
    thread_state_free(state)
    return NULL
