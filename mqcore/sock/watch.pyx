"""Which thread watches a socket's set: see watch.pxd.

The states change under one small lock, with the switching that goes with them: TRANSITIONS.

The tick stores PARKED, then reads `lead`. A leader stores lead = 0, then reads the state. So one of
them switches on. The same holds for ARMED and an entering leader, and for `wants`. All of these are
sequentially consistent.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from mqcore.base.clock cimport now_ns
from mqcore.base.lock cimport lock_release, lock_take
from mqcore.base.widen cimport widen
from mqcore.reactor.includes cimport close
from mqcore.reactor.io_thread cimport (
    TICK_LED, TICK_LOOP, IoThread, Task, Tick, Watch, io_now, io_post, io_sync, io_tick, io_untick,
    io_watch,
)
from mqcore.reactor.poller cimport PollerOps, Ready
from mqcore.reactor.wakeup cimport eventfd_new, eventfd_signal
from mqcore.sock.events cimport sock_act, sock_arrived
from mqcore.sock.sock cimport LEAD_LOOP


cdef enum:
    SETS = 8                  # of one socket, looked into at a time
    HARVEST = 16              # edges between two looks at the clock
    SHORT_NS = 10000


# -- the tables ------------------------------------------------------------------------------------

# A state, its number, who watches.
STATES = (
    ("ARMED", WATCH_ARMED, "the I/O thread"),
    ("LED", WATCH_LED, "callers who come and go; the I/O thread ticks"),
    ("PARKED", WATCH_PARKED, "a caller who sleeps there, perhaps for long"),
)

# In a state, with a leader inside or not, an event, the state that follows. What is not here keeps
# the state: leaders who come and go while the watch is LED cost no system call and no lock.
# To ARMED and from it the I/O thread's interest in the set is switched, two system calls.
# `tests/unit/sock/test_watch.py` drives a socket through all of them.
TRANSITIONS = (
    ("ARMED", "nobody", "a leader enters", "PARKED"),
    ("PARKED", "a leader", "it leaves within a tick's time", "LED"),
    ("PARKED", "a leader", "it leaves later", "ARMED"),
    ("PARKED", "a leader", "it leaves, an engine cannot wait", "ARMED"),
    ("PARKED", "nobody", "an engine cannot wait", "ARMED"),
    ("PARKED", "nobody", "a backlog is received", "ARMED"),
    ("LED", "a leader", "it leaves, an engine cannot wait", "ARMED"),
    ("LED", "a leader", "a tick, none entered since the last", "PARKED"),
    ("LED", "nobody", "a tick, none entered since the last", "ARMED"),
    ("LED", "nobody", "an engine cannot wait", "ARMED"),
    ("LED", "nobody", "a backlog is received", "ARMED"),
)


# -- the sets --------------------------------------------------------------------------------------

cdef int watch_open(Sock* s) noexcept nogil:
    cdef uint32_t first
    if s.watching.load():
        return 0
    s.n_watches = s.plane.n_ios
    s.watches = <Watch*> calloc(s.n_watches, sizeof(Watch))
    if s.watches == NULL:
        return -1
    first = s.plane.next_io.fetch_add(1)
    s.home = s.plane.ios[first % s.n_watches]
    s.led_tick.which = TICK_LED
    s.led_tick.run = _tick
    s.led_tick.arg = s
    s.led_task.run = _start_or_end
    s.led_task.arg = s
    s.loop_tick.which = TICK_LOOP
    s.loop_tick.run = _look_for_loop
    s.loop_tick.arg = s
    s.loop_task.run = _start_or_end_looking
    s.loop_task.arg = s
    s.wake = eventfd_new()
    if s.wake < 0 or not _open_sets(s, first):
        _close_sets(s)
        return -1
    s.watching.store(1)
    return 0


cdef bint _open_sets(Sock* s, uint32_t first) noexcept nogil:
    """A set for each I/O thread; a leader waits on the only one, or on one that they are nested in,
    never on a list."""
    cdef const PollerOps* ops = s.plane.poller
    cdef Watch* w
    cdef uint32_t i
    for i in range(s.n_watches):
        w = &s.watches[i]
        w.arg = s
        w.harvest = _harvest
        w.set = ops.open()
        if w.set == NULL:
            return False
    s.set = s.watches[0].set if s.n_watches == 1 else ops.open()
    if s.set == NULL or ops.add(s.set, s.wake, NULL) < 0:
        return False
    if s.n_watches > 1:
        for i in range(s.n_watches):
            if ops.add_set(s.set, s.watches[i].set, &s.watches[i]) < 0:
                return False
    for i in range(s.n_watches):
        if io_watch(s.plane.ios[(first + i) % s.n_watches], &s.watches[i]) < 0:
            return False
    return True


cdef void _close_sets(Sock* s) noexcept nogil:
    cdef const PollerOps* ops = s.plane.poller
    cdef Watch* w
    cdef uint32_t i
    for i in range(s.n_watches):
        w = &s.watches[i]
        if w.io != NULL:
            ops.arm_set(w.io.set, w.set, w, False)
            io_sync(w.io)     # it may have harvested this set just before
    watch_abandon(s)
    free(s.watches)
    s.watches = NULL


cdef void watch_abandon(Sock* s) noexcept nogil:
    cdef uint32_t i
    if s.n_watches > 1 and s.set != NULL:
        s.plane.poller.close(s.set)
    for i in range(s.n_watches):
        if s.watches[i].set != NULL:
            s.plane.poller.close(s.watches[i].set)
    s.set = NULL
    if s.wake >= 0:
        close(s.wake)
    s.wake = -1


cdef void watch_close(Sock* s) noexcept nogil:
    if s.watching.exchange(0):
        _close_sets(s)


cdef Watch* watch_next(Sock* s) noexcept nogil:
    cdef Watch* found = s.watches
    cdef uint32_t i
    for i in range(1, s.n_watches):
        if s.watches[i].load.load() < found.load.load():
            found = &s.watches[i]
    return found


cdef int watch_wait(Sock* s, Ready* found, int cap, int64_t timeout) noexcept nogil:
    cdef const PollerOps* ops = s.plane.poller
    cdef Ready[SETS] sets
    cdef Watch* w
    cdef int m, i, k
    cdef int n = 0
    if s.n_watches == 1:
        return ops.wait(s.set, found, cap, timeout, NULL)
    m = ops.wait(s.set, sets, SETS, timeout, NULL)
    if m < 0:
        return m
    for i in range(m):        # our eventfd first: its edge is reported once
        if sets[i].arg == NULL:
            found[0] = sets[i]
            n = 1
    for i in range(m):
        w = <Watch*> sets[i].arg
        if w != NULL and n < cap:
            k = ops.wait(w.set, found + n, cap - n, 0, NULL)
            n += k if k > 0 else 0
    return n


cdef void _switch(Sock* s, bint on) noexcept nogil:
    cdef Watch* w
    cdef uint32_t i
    for i in range(s.n_watches):
        w = &s.watches[i]
        s.plane.poller.arm_set(w.io.set, w.set, w, on)


# -- the state -------------------------------------------------------------------------------------

cdef void _arm(Sock* s) noexcept nogil:
    """Under the watch's lock: the I/O thread watches, unless a thread leads."""
    s.watch_state.store(WATCH_ARMED)
    _switch(s, True)
    widen()
    if s.lead.load():         # the leader may have read LED
        s.watch_state.store(WATCH_PARKED)
        _switch(s, False)


cdef void _park(Sock* s) noexcept nogil:
    """Under the watch's lock: a leader watches."""
    if s.watch_state.load() == WATCH_ARMED:
        s.watch_state.store(WATCH_PARKED)
        _switch(s, False)


cdef void lead_enter(Sock* s) noexcept nogil:
    s.epoch.fetch_add(1)
    if s.watch_state.load() == WATCH_LED:
        s.entered = 0         # long ago: should a tick park us, we have slept for one
        return
    s.entered = now_ns()
    lock_take(&s.watch_lock)
    _park(s)
    lock_release(&s.watch_lock)


cdef void lead_leave(Sock* s) noexcept nogil:
    cdef int64_t entered = s.entered          # the next leader's, once we let go
    s.lead.exchange(0)
    widen()
    if s.watch_state.load() != WATCH_LED or s.wants.load():
        _left(s, entered)
    if s.followers.load():
        sock_arrived(s)       # messages or the lead are left over: wake a follower


cdef bint lead_leave_as(Sock* s, uint32_t who) noexcept nogil:
    if not s.lead.compare_exchange_strong(who, 1):
        return False
    s.looped.store(0)
    widen()
    lead_leave(s)
    return True


cdef void lead_claim(Sock* s) noexcept nogil:
    cdef uint32_t who = s.lead.load()
    if who >= LEAD_LOOP:
        # SYNC: seq_cst pair with close(): it takes the lead from a loop, then looks for users and
        # closes the sets; we say that we use them, then take the lead
        s.users.fetch_add(1)
        lead_leave_as(s, who)
        s.users.fetch_sub(1)


cdef void _left(Sock* s, int64_t entered) noexcept nogil:
    lock_take(&s.watch_lock)
    if s.lead.load():
        pass                  # the next leader is inside and does it when it leaves
    elif s.wants.load() or s.closing.load():
        if s.watch_state.load() != WATCH_ARMED:
            _arm(s)
    elif s.watch_state.load() == WATCH_PARKED:
        if now_ns() - entered >= s.home.ticks[TICK_LED].period:
            _arm(s)
        else:
            s.watch_state.store(WATCH_LED)
            if not s.ticking:
                s.ticking = 1
                s.users.fetch_add(1)     # the tick holds the socket
                io_post(s.home, &s.led_task)
    lock_release(&s.watch_lock)


cdef void watch_now(Sock* s) noexcept nogil:
    lead_claim(s)
    if s.lead.load() or s.watch_state.load() == WATCH_ARMED or not s.watching.load():
        return
    lock_take(&s.watch_lock)
    if not s.lead.load() and s.watch_state.load() != WATCH_ARMED:
        _arm(s)
    lock_release(&s.watch_lock)


cdef void watch_beside(Sock* s) noexcept nogil:
    s.users.fetch_add(1)      # close() says so, then looks for users: it closes the set after that
    if not s.closing.load():
        watch_now(s)
    s.users.fetch_sub(1)


cdef void watch_wants(Port* port, int delta) noexcept nogil:
    cdef Sock* s = <Sock*> port
    s.wants.fetch_add(delta)
    if delta > 0:
        widen()
        watch_now(s)


cdef void watch_hurry(Sock* s) noexcept nogil:
    if not s.watching.load():
        return
    lock_take(&s.watch_lock)
    if s.ticking:
        io_post(s.home, &s.led_task)
    if s.looking.load():
        io_post(s.home, &s.loop_task)
    lock_release(&s.watch_lock)


cdef void watch_loop(Sock* s) noexcept nogil:
    # SYNC: seq_cst pair with _looks_on(): the loop has set `looped`, then looks for the tick
    if s.looking.load():
        return
    lock_take(&s.watch_lock)
    if not s.looking.load() and not s.closing.load():
        s.looking.store(1)
        s.users.fetch_add(1)  # the tick holds the socket
        io_post(s.home, &s.loop_task)
    lock_release(&s.watch_lock)


# -- on the I/O thread -----------------------------------------------------------------------------

cdef void _start_or_end(Task* task, IoThread* io) noexcept nogil:
    cdef Sock* s = <Sock*> task.arg
    if not s.closing.load():
        io_tick(io, &s.led_tick)
        return
    io_untick(io, &s.led_tick)
    if s.ticking:             # ours: only ticks and this task clear it
        _tick(&s.led_tick, io)


cdef bint _tick(Tick* tick, IoThread* io) noexcept nogil:
    cdef Sock* s = <Sock*> tick.arg
    cdef uint32_t epoch = s.epoch.load()
    cdef bint again = False
    lock_take(&s.watch_lock)
    if s.watch_state.load() == WATCH_LED:
        if epoch != s.ticked_epoch and not s.closing.load():
            s.ticked_epoch = epoch
            again = True
        else:
            s.watch_state.store(WATCH_PARKED)
            widen()
            if not s.lead.load():
                _arm(s)
    if not again:
        s.ticking = 0
    lock_release(&s.watch_lock)
    if not again:
        s.users.fetch_sub(1)
    return again


cdef void _start_or_end_looking(Task* task, IoThread* io) noexcept nogil:
    cdef Sock* s = <Sock*> task.arg
    if not s.closing.load():
        io_tick(io, &s.loop_tick)
        return
    io_untick(io, &s.loop_tick)
    if s.looking.load():
        _look_for_loop(&s.loop_tick, io)


cdef bint _looks_on(Sock* s) noexcept nogil:
    """Whether this tick goes on: as long as loops come to lead."""
    cdef uint32_t epoch = s.epoch.load()
    cdef bint again
    lock_take(&s.watch_lock)
    again = not s.closing.load() and (s.looped.load() or epoch != s.looked_epoch)
    s.looked_epoch = epoch
    if not again:
        # SYNC: seq_cst pair with watch_loop(): `looking` is cleared, then we look for a loop
        s.looking.store(0)
        widen()
        again = not s.closing.load() and s.looped.load()
        s.looking.store(again)
    lock_release(&s.watch_lock)
    return again


cdef bint _look_for_loop(Tick* tick, IoThread* io) noexcept nogil:
    """A loop that is busy with a callback leaves edges in the set. This thread acts on them, and
    watches until the loop leads again."""
    cdef Sock* s = <Sock*> tick.arg
    cdef Ready[HARVEST] found
    cdef bint again = _looks_on(s)
    cdef int n = 0
    if again and s.looped.load():
        n = watch_wait(s, found, HARVEST, 0)
    if n > 0:
        watch_now(s)
        _act(s, found, n)
    if not again:
        s.users.fetch_sub(1)
    return again


cdef void _act(Sock* s, Ready* found, int n) noexcept nogil:
    """On what this thread has harvested. A leader's wake-up is signalled again."""
    cdef int i
    sock_act(s, found, n)
    for i in range(n):
        if found[i].arg == NULL and s.lead.load():
            eventfd_signal(s.wake)


cdef void _harvest(Watch* watch) noexcept nogil:
    """The I/O thread takes the socket's edges, unless a thread leads. It does not consume a
    leader's wake-up: one that arrived meanwhile is signalled again. If its share is used up, the
    set stays ready, and other sockets have their turn."""
    cdef Sock* s = <Sock*> watch.arg
    cdef Ready[HARVEST] found
    cdef int64_t now, before, end
    cdef int most = 1
    cdef int n = 1
    if s.lead.load():         # the leader has not switched this thread off yet: do it now
        lock_take(&s.watch_lock)
        if s.lead.load():
            _park(s)
        lock_release(&s.watch_lock)
        return
    now = io_now(watch.io)
    end = now + watch.io.share
    before = now
    while n == most and now < end:
        # an edge of a busy peer is a long piece of work, those of quiet ones are short
        most = min(2 * most, <int> HARVEST) if now - before < SHORT_NS else 1
        before = now
        n = s.plane.poller.wait(watch.set, found, most, 0, NULL)
        widen()
        _act(s, found, n)
        now = io_now(watch.io)
    watch.greedy = n == most
