"""Waiting: see wait.pxd.

A leader sleeps in the socket's own set and runs what it harvests, so a message goes from the kernel
to the caller without another thread. Meanwhile the I/O thread does not watch that set (watch.pxd).
A socket has one leader. Other waiters sleep on the word `change`. A leader that leaves wakes the
followers, so that one of them leads. If all of them receive, and any message is for any of them,
messages and leaders wake one follower, which wakes the next one when it leaves. A notifying thread
increments `change` first and then checks for sleepers. A waiter registers as a sleeper first and
then checks `change`.

If the only connection of a socket can be polled without a system call (shared memory: `peek` in
mqcore/spi/message_engine.pxd), a leader polls it for some microseconds before it sleeps, each time
under the engine's lease, so that no other thread finds the connection freed. Polling ends with a
read, which finds nothing and requests a wake-up.

A loop leads while it alone waits: it watches the descriptor of the socket's set and harvests when
that is readable. Its wake-up is the eventfd of its notifier, leading or not, so it may lose the
lead at any moment and notices at its next check. A loop may be busy for an unknown time. So it
leads only as long as a task waits, and a loop that leaves edges in the set for 50 ms loses the lead
(watch_loop).
"""

from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport cpu_pause
from mqcore.base.spin cimport SPIN_LOOKS, spin_failed, spin_paid, spin_time
from mqcore.base.widen cimport SLICE_NS, widen

from mqcore.link.engine cimport Engine
from mqcore.link.lease cimport E_WAKE, engine_kick, engine_peek
from mqcore.reactor.poller cimport Ready
from mqcore.reactor.wakeup cimport eventfd_signal, futex_wait
from mqcore.sock.batching cimport batch_settle
from mqcore.sock.notify cimport notify_all, notify_used
from mqcore.sock.events cimport sock_act
from mqcore.sock.sock cimport LEAD_LOOP, WAIT_CHANGED, WAIT_LOOK, WAIT_TIMEOUT
from mqcore.sock.watch cimport (
    lead_claim, lead_enter, lead_leave, lead_leave_as, watch_loop, watch_now, watch_wait,
)

cdef enum:
    HARVEST = 16              # few, since each must be acted on before leaving
    LOOP_HARVEST = 2          # edges between two looks at the clock
    SPIN_ON = 1000000         # ns in all, while pieces of a message come
    LOOP_NS = 200000          # then the loop's other tasks have their turn


cdef inline int64_t _patience(int64_t deadline, bint slices) noexcept nogil:
    cdef int64_t left = -1
    if deadline >= 0:
        left = deadline - now_ns()
        if left < 0:
            left = 0
    if slices and (left < 0 or left > SLICE_NS):
        left = SLICE_NS
    return left


cdef int _verdict(Sock* s, uint32_t seen, int64_t deadline) noexcept nogil:
    if s.change.load() != seen:
        return WAIT_CHANGED
    if deadline >= 0 and now_ns() >= deadline:
        return WAIT_TIMEOUT
    return WAIT_LOOK


# -- a loop leads ----------------------------------------------------------------------------------

cdef bint _loop_may(Sock* s) noexcept nogil:
    return (not s.plane.stepped and s.watching.load() and not s.closing.load()
            and not s.followers.load() and not s.wants.load()
            and s.notified.load() == 1 and not s.armed.load() & s.rings.load())


cdef bint loop_lead(Sock* s, int place) noexcept nogil:
    cdef uint32_t who = 0
    cdef uint32_t me = LEAD_LOOP + place
    if s.lead.load() == me:
        return True
    if s.armed.load() & s.rings.load():
        notify_used(s)        # pollers between two polls look first, and claim the lead if need be
    if (not _loop_may(s) or s.plane.poller.descriptor(s.set) < 0
            or not s.lead.compare_exchange_strong(who, 1)):
        return False
    lead_enter(s)
    s.looped.store(1)
    widen()
    # SYNC: seq_cst pair with lead_claim: a waiter or close() registers first, then looks for a
    # leading loop; this loop registers as leader, then looks for them
    s.lead.exchange(me)
    widen()
    if _loop_may(s):
        watch_loop(s)
        return True
    lead_leave_as(s, me)
    return False


cdef void loop_leave(Sock* s, int place) noexcept nogil:
    if s.lead.load() == <uint32_t> (LEAD_LOOP + place):
        s.users.fetch_add(1)  # as in lead_claim()
        lead_leave_as(s, LEAD_LOOP + place)
        s.users.fetch_sub(1)


cdef bint loop_harvest(Sock* s, int place) noexcept nogil:
    cdef Ready[LOOP_HARVEST] found
    cdef uint32_t me = LEAD_LOOP + place
    cdef uint32_t who
    cdef int64_t end
    cdef int n = LOOP_HARVEST
    cdef int i
    cdef bint rung = False
    s.users.fetch_add(1)      # the set stays
    if s.lead.load() != me:
        s.users.fetch_sub(1)
        return False
    # this thread needs no notification of what it finds itself
    s.armed.fetch_and(~(<uint32_t> 1 << place))
    end = now_ns() + LOOP_NS
    while n == LOOP_HARVEST:
        n = watch_wait(s, found, LOOP_HARVEST, 0)
        widen()
        for i in range(n):
            rung = rung or found[i].arg == NULL
        if n > 0:
            sock_act(s, found, n)
        if now_ns() >= end:
            break
    who = s.lead.load()
    if rung and who != 0 and who != me:
        eventfd_signal(s.wake)  # it was for the thread that has claimed the lead meanwhile
    s.users.fetch_sub(1)
    return True


# -- a thread leads, or follows --------------------------------------------------------------------

cdef bint _spin(Sock* s, uint32_t seen, int64_t deadline) noexcept nogil:
    """A message may come sooner than we could fall asleep: ask for it, where there is one
    connection and asking it is cheap."""
    cdef Engine* e = s.port.peeked.load()
    cdef int64_t most = s.port.spin.load()
    cdef int64_t spin, until, last
    cdef bint some = False
    cdef int i
    if e == NULL or s.engines.load() != 1:
        return False
    spin = spin_time(&s.spin, most)
    if spin == 0:
        return False
    until = now_ns() + spin
    last = until + SPIN_ON
    if 0 <= deadline < last:
        last = deadline
    while now_ns() < min(until, last):
        for i in range(SPIN_LOOKS):
            if engine_peek(e, &s.port):
                until = now_ns() + spin  # a piece of a large one: the next is on its way
                some = True
            if s.change.load() != seen:
                engine_kick(e, E_WAKE)
                spin_paid(&s.spin, most)
                return True
            cpu_pause()
    engine_kick(e, E_WAKE)
    if some:
        return s.change.load() != seen
    spin_failed(&s.spin)
    return s.change.load() != seen


cdef int _lead(Sock* s, uint32_t seen, int64_t deadline, bint slices) noexcept nogil:
    cdef Ready[HARVEST] found
    cdef int n
    cdef int verdict = WAIT_LOOK
    lead_enter(s)
    if _spin(s, seen, deadline):
        verdict = WAIT_CHANGED
    while verdict == WAIT_LOOK:
        s.lead_asleep.exchange(1)
        if s.change.load() != seen:
            s.lead_asleep.exchange(0)
            verdict = WAIT_CHANGED
            break
        widen()
        n = watch_wait(s, found, HARVEST, _patience(deadline, slices))
        s.lead_asleep.exchange(0)
        if n > 0:
            sock_act(s, found, n)
        verdict = _verdict(s, seen, deadline)
        if n < 0 or (n == 0 and slices):
            break
    lead_leave(s)
    if s.notified.load():
        watch_now(s)          # a loop or a poller that waits is not one to lead
    elif s.armed.load():
        notify_all(s)         # a poller of many watches what it counts on when it looks
    return verdict


cdef int sock_wait(Sock* s, uint32_t seen, int64_t deadline, bint slices,
                   bint taker) noexcept nogil:
    cdef uint32_t nobody = 0
    cdef int verdict
    if s.change.load() != seen:
        return WAIT_CHANGED
    batch_settle(s.plane)
    lead_claim(s)
    if s.watching.load() and s.lead.compare_exchange_strong(nobody, 1):
        return _lead(s, seen, deadline, slices)
    s.followers.fetch_add(1)
    if s.change.load() == seen:
        # a leader that has just left did not see us follow: then the lead is free, and we take it;
        # a loop that has just come leaves it to us
        if s.watching.load() and s.lead.load() != 1:
            s.followers.fetch_sub(1)
            return WAIT_LOOK
        widen()
        s.takers.fetch_add(taker)        # never more than followers
        futex_wait(&s.change, seen, _patience(deadline, slices))
        s.takers.fetch_sub(taker)
    s.followers.fetch_sub(1)
    verdict = _verdict(s, seen, deadline)
    return verdict
