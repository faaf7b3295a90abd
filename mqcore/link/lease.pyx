"""The lease: see lease.pxd. Order in this file: the tables, taking and releasing, what a holder
does with the notes, what a socket calls at its engine. What is read and written meanwhile is in the
pumps: stream.pyx, filtered.pyx, messages.pyx. What passing time means is in patience.pyx.

`tests/unit/link/test_lease.py` drives an engine through every state with every event and holds the
answers against TRANSITIONS.
"""

from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free

from mqcore.base.bytes cimport bytes_fini
from mqcore.base.message cimport vec_fini
from mqcore.base.status cimport MQ_DONE, MQ_OK
from mqcore.base.widen cimport widen
from mqcore.link.engine cimport DOWN_CLOSED, DOWN_MEMORY, DOWN_PEER, DOWN_REPLACED
from mqcore.link.includes cimport SHUT_WR, shutdown
from mqcore.link.messages cimport messages_take
from mqcore.link.plane cimport Plane
from mqcore.link.session cimport (
    session_attach, session_drain, session_end, session_fail_as, session_leave, session_lingers,
    session_mute, session_read_on, session_return, session_want,
)
from mqcore.link.slots cimport slot_give
from mqcore.link.stream cimport stream_shaken
from mqcore.link.patience cimport patience_look, patience_overdue
from mqcore.reactor.io_thread cimport IoThread, Task, io_now, io_post, io_post_later
from mqcore.spi.message_engine cimport ENGINE_STREAM
from mqcore.spi.pipe cimport (
    ASKED_CLOSE, ASKED_RESET, ASKED_SHUT, DIRTY_IN, DIRTY_OUT, DIRTY_RESET, DIRTY_SHUT, FarOps,
)
from mqcore.wire.codec cimport Verdict, batch_fini

# -- the tables ------------------------------------------------------------------------------------

# A note, its bit, who leaves it, what it means. The holder clears notes when it takes them, before
# it acts; a new tenant of the slot clears those that were left to the last one.
NOTES = (
    ("HELD", E_HELD, "who takes the lease; cleared when it is released",
     "a thread runs the engine"),
    ("IN", E_IN, "the poller, a socket that freed space, the holder itself",
     "bytes may be readable, or there is space for messages held back"),
    ("OUT", E_OUT, "a socket that wrote messages, the holder itself",
     "messages or control bytes may be written"),
    ("HUP", E_HUP, "the poller", "the peer has hung up: read to the end"),
    ("START", E_START, "engine_start()", "the engine is equipped and watched"),
    ("TIMER", E_TIMER, "the engine's timer", "time to look at the clock"),
    ("ASKED", E_ASKED, "the socket", "Pipe.asked has a request: close or reset the connection"),
    ("TERM", E_TERM, "the control plane", "close the connection"),
    ("ROOM", E_ROOM, "the poller", "the kernel has space again"),
    ("RELEASE", E_RELEASE, "the control plane", "the DOWN note has been read: the slot is free"),
    ("WAKE", E_WAKE, "the poller, a thread that has peeked",
     "a message engine's second descriptor rang"),
    ("LEAVE", E_LEAVE, "the control plane", "close the connection once what has arrived is read"),
    ("JUDGED", E_JUDGED, "the control plane", "Engine.verdict says what is decided on the peer"),
)

# A state, its number, what it means.
STATES = (
    ("FREE", ENGINE_FREE, "the slot has no connection"),
    ("NEW", ENGINE_NEW, "made, not yet started"),
    ("HANDSHAKE", ENGINE_HANDSHAKE, "the protocol's greeting is under way; there is no pipe"),
    ("ACTIVE", ENGINE_ACTIVE, "a peer: its pipe is with the socket"),
    ("DRAINING", ENGINE_DRAINING, "pipe given back, our FIN is out, waiting for the peer's"),
    ("READING", ENGINE_READING,
     "nothing more is written; what the peer has sent is read to its end"),
    ("DEAD", ENGINE_DEAD, "descriptor closed; the slot waits until the DOWN note has been read"),
)

# In a state, an event, the state that follows, what the pump is called for (Engine.pump). An event
# is a note, a note with its circumstances, or what a pump reports ("shaken", "ended"). What is not
# here does nothing. "made" is engine_new().
TRANSITIONS = (
    ("FREE", "made", "NEW", ""),
    ("NEW", "START", "HANDSHAKE", "read, write"),
    ("HANDSHAKE", "IN", "HANDSHAKE", "read"),
    ("HANDSHAKE", "HUP", "HANDSHAKE", "read"),
    ("HANDSHAKE", "OUT", "HANDSHAKE", "write"),
    ("HANDSHAKE", "ROOM", "HANDSHAKE", "write"),
    ("HANDSHAKE", "WAKE", "HANDSHAKE", "write"),
    ("HANDSHAKE", "shaken", "ACTIVE", "write"),
    ("HANDSHAKE", "TIMER, late", "DEAD", "read, finish"),
    ("HANDSHAKE", "broken", "HANDSHAKE", "read"),
    ("HANDSHAKE", "TERM", "DEAD", "finish"),
    ("HANDSHAKE", "LEAVE", "HANDSHAKE", "read"),
    ("HANDSHAKE", "ended", "DEAD", ""),
    ("ACTIVE", "IN", "ACTIVE", "read"),
    ("ACTIVE", "HUP", "ACTIVE", "read"),
    ("ACTIVE", "HUP, held up", "READING", "read, finish"),
    ("ACTIVE", "OUT", "ACTIVE", "write"),
    ("ACTIVE", "ROOM", "ACTIVE", "write"),
    ("ACTIVE", "WAKE", "ACTIVE", "write"),
    ("ACTIVE", "ASKED, reset", "DRAINING", "finish, read"),
    ("ACTIVE", "ASKED, close", "DEAD", "finish"),
    ("ACTIVE", "TIMER, late", "DEAD", "read, finish"),
    ("ACTIVE", "ASKED, shut", "READING", "finish, read"),
    ("ACTIVE", "LEAVE", "READING", "finish, read"),
    ("ACTIVE", "broken", "READING", "read"),
    ("ACTIVE", "TERM", "DEAD", "finish"),
    ("ACTIVE", "ended", "DEAD", ""),
    ("DRAINING", "IN", "DRAINING", "read"),
    ("DRAINING", "HUP", "DRAINING", "read"),
    ("DRAINING", "TIMER, late", "DEAD", "finish"),
    ("DRAINING", "TERM", "DEAD", "finish"),
    ("DRAINING", "ended", "DEAD", "finish"),
    ("READING", "IN", "READING", "read"),
    ("READING", "HUP", "READING", "read"),
    ("READING", "TIMER, late", "DEAD", "read"),
    ("READING", "ASKED, close", "DEAD", ""),
    ("READING", "ASKED, reset", "DRAINING", "finish, read"),
    ("READING", "TERM", "DEAD", ""),
    ("READING", "ended", "DEAD", ""),
    ("DEAD", "RELEASE", "FREE", ""),
)


# -- taking and releasing --------------------------------------------------------------------------

cdef void lease_run(Engine* e, uint32_t allowed) noexcept nogil:
    """Holds the lease on entry, not on return. Two rounds at most, then the I/O thread goes on."""
    cdef uint32_t notes, left, held
    cdef int rounds = 0
    e.turned = 0
    while True:
        notes = e.word.fetch_and(E_HELD) & ~(<uint32_t> E_HELD)
        left = notes & ~allowed
        if left:
            e.word.fetch_or(left)
        _step(e, notes & allowed)
        held = E_HELD
        widen()
        if not left and e.word.compare_exchange_strong(held, 0):
            return
        rounds += 1
        if left or rounds >= 2 or e.turned:
            _let_go(e, not left or e.turned)
            return


cdef void _let_go(Engine* e, bint turned) noexcept nogil:
    """First let go with the notes left, then post. The slot may have another tenant by then.
    `turned`: this engine has had its turn, and others go first."""
    cdef IoThread* io = e.io
    e.word.fetch_and(~(<uint32_t> E_HELD))
    widen()
    if turned:
        io_post_later(io, &e.task)
    else:
        io_post(io, &e.task)


cdef void lease_give_up(Engine* e) noexcept nogil:
    _let_go(e, False)


cdef void engine_kick_here(Engine* e, uint32_t facts) noexcept nogil:
    if not e.word.fetch_or(facts | E_HELD) & E_HELD:
        lease_run(e, E_ALL)


cdef void engine_kick(Engine* e, uint32_t facts) noexcept nogil:
    if e.posted:
        engine_post(e, facts)
    else:
        engine_kick_here(e, facts)


cdef bint engine_peek(Engine* e, Port* port) noexcept nogil:
    cdef bint found = False
    if e.word.fetch_or(E_HELD) & E_HELD:
        return False          # its holder sees to it
    if (e.port == port and e.state == ENGINE_ACTIVE and e.media_started and not e.in_blocked
            and e.media.ops.peek(e.media)):
        e.word.fetch_or(E_WAKE)
        found = True
    lease_run(e, E_ALL)
    return found


cdef void engine_kick_out(Engine* e) noexcept nogil:
    if e.posted:
        engine_post(e, E_OUT)
    elif not e.word.fetch_or(E_OUT | E_HELD) & E_HELD:
        lease_run(e, E_OUT)


cdef void engine_post(Engine* e, uint32_t facts) noexcept nogil:
    if not e.word.fetch_or(facts) & E_HELD:
        widen()
        io_post(e.io, &e.task)


cdef void _run_task(Task* task, IoThread* io) noexcept nogil:
    engine_kick_here(<Engine*> task, 0)


# -- what a holder does ----------------------------------------------------------------------------

cdef void _step(Engine* e, uint32_t notes) noexcept nogil:
    """What TRANSITIONS says, for all notes that were there at once."""
    cdef bint begins = notes & E_START and e.state == ENGINE_NEW
    if notes & E_RELEASE and e.state == ENGINE_DEAD:
        _release(e)
        return
    if begins:
        e.state = ENGINE_HANDSHAKE
        session_want(e)
    if e.state == ENGINE_FREE or e.state == ENGINE_DEAD or e.state == ENGINE_NEW:
        return                # NEW: a fact that was meant for the slot's last tenant
    if notes & E_TERM or notes & E_ASKED and _asked(e, ASKED_CLOSE):
        session_end(e, DOWN_CLOSED, NULL, 0)
        return
    if notes & (E_LEAVE | E_ASKED) and _leaves(e, notes & E_LEAVE):
        notes |= E_IN
    if e.state == ENGINE_DEAD:
        return
    if e.unwatched:
        session_fail_as(e, b"the connection cannot be watched", e.unwatched)
        return
    if notes & E_HUP:
        e.hup = 1
        notes |= E_IN
    if begins and not _begin(e):
        session_end(e, DOWN_MEMORY, b"out of memory", 0)
        return
    if notes & E_TIMER and patience_overdue(e):
        notes |= E_IN | E_WAKE
    if notes & E_WAKE and e.media != NULL:
        e.out_blocked = 0
        session_want(e)
    if notes & E_JUDGED:
        _judged(e)
    _take_in(e, begins or notes & E_IN, notes & E_WAKE)
    if notes & E_TIMER and e.state != ENGINE_DEAD:
        patience_look(e)     # after what was to be heard
    if notes & E_ROOM:
        e.out_blocked = 0
        session_want(e)
    if e.out_blocked or (e.state != ENGINE_HANDSHAKE and e.state != ENGINE_ACTIVE):
        if e.state == ENGINE_READING and notes & (E_IN | E_WAKE):
            _has_read(e)
        return
    if (begins or notes & (E_OUT | E_ROOM | E_WAKE) or e.codec.ctl.n or e.codec.owed.n
            or e.wire.n):
        e.pump.write(e)


cdef void _hang_up(Engine* e) noexcept nogil:
    """The peer has ended its side, and what it has sent waits for space: it would not read what is
    written now. The link is read to its end, which is here already."""
    e.pump.finish(e)
    shutdown(e.fd, SHUT_WR)
    session_read_on(e, e.ends_as, e.ends_why)
    session_return(e)


cdef inline void _take_in(Engine* e, bint reads, bint woken) noexcept nogil:
    """What has arrived."""
    if reads and e.state != ENGINE_DEAD:
        e.pump.read(e)
    if woken and e.media != NULL:
        messages_take(e)
    if e.leaves and e.state == ENGINE_ACTIVE:       # its handshake was complete
        session_leave(e, DOWN_CLOSED, NULL)
    if e.hup and e.in_blocked and e.state == ENGINE_ACTIVE and e.media == NULL:
        _hang_up(e)
    session_lingers(e)


cdef const char* REPLACED = b"another link of the peer has its routing id"


cdef bint _is_known(Engine* e) noexcept nogil:
    """Whether the peer may be past its handshake: it has all of ours. Then it may have sent
    messages that we have not read."""
    return ((e.media == NULL or e.media.ops.flags & ENGINE_STREAM) and not e.leaves
            and e.codec.ctl.n + e.codec.owed.n + e.wire.n == 0)


cdef bint _leaves(Engine* e, bint ours) noexcept nogil:
    """Whether our side ends the link and reads what has arrived. `ours`: the application ends it,
    else the pattern may have asked for it."""
    if ours and e.state == ENGINE_HANDSHAKE and _is_known(e):
        e.leaves = 1
        e.born = io_now(e.io)
        shutdown(e.fd, SHUT_WR)
    elif ours and e.state == ENGINE_HANDSHAKE:
        session_end(e, DOWN_CLOSED, NULL, 0)
    elif ours and e.state == ENGINE_ACTIVE:
        session_leave(e, DOWN_CLOSED, NULL)
    elif ours:
        return False          # it leaves already
    elif e.state == ENGINE_ACTIVE and _asked(e, ASKED_SHUT):
        session_leave(e, DOWN_REPLACED, REPLACED)
        e.read_until = INT64_MAX
    else:
        if _asked(e, ASKED_RESET):
            e.resets = True
            session_drain(e)  # which discards what the peer still sends
        return False
    return True


cdef void _has_read(Engine* e) noexcept nogil:
    """Of a link that reads on, after a read. What is held back at an HWM is read once there is
    space; the socket has what was not sent until then."""
    cdef int64_t read = e.link.traffic.bytes_in.load()
    cdef bint more = e.word.load() & (E_IN | E_WAKE)        # but it is others' turn
    session_mute(e)
    # what FIONREAD counts may never come: a byte of urgent data
    e.caught_up = read >= e.arrived or not more and not e.in_blocked
    if not e.in_blocked and not e.filter_more and read >= e.read_until:
        if e.pump.pending(e):
            session_drain(e)  # the peer has still to take what was written
        else:
            session_end(e, DOWN_PEER, NULL, 0)
    elif not more:
        session_return(e)


cdef bint _begin(Engine* e) noexcept nogil:
    """The wire's handshake; a message engine without a stream has none, and some wires are past it
    before the peer's first byte."""
    cdef size_t used = 0
    if e.media != NULL and not e.media.ops.flags & ENGINE_STREAM:
        return session_attach(e)
    if e.codec.ops.start(e.codec, not e.config.connected) != MQ_OK:
        return False
    if e.codec.ops.feed(e.codec, NULL, 0, &used) != MQ_DONE:
        return True
    if not session_attach(e):
        return False
    e.link.traffic.bytes_in.fetch_add(e.input.end - e.input.pos)  # came along with filters' ones
    return True


cdef void _judged(Engine* e) noexcept nogil:
    cdef Verdict* verdict = e.verdict.exchange(NULL)
    if verdict != NULL and e.state == ENGINE_HANDSHAKE and e.codec.asking:
        stream_shaken(e, e.codec.ops.judged(e.codec, verdict))
    free(verdict)


cdef void _release(Engine* e) noexcept nogil:
    cdef Plane* plane = e.plane
    free(e.verdict.exchange(NULL))
    e.codec.ops.fini(e.codec)
    bytes_fini(&e.codec.ctl)
    free(e.codec)
    e.codec = NULL
    batch_fini(&e.batch)
    bytes_fini(&e.wire)
    vec_fini(&e.held)
    e.tenant.fetch_add(1)     # its timer is stale now
    e.state = ENGINE_FREE
    plane.engines.fetch_sub(1)
    slot_give(plane, e)


# -- what a socket calls at its engine -------------------------------------------------------------

cdef bint _asked(Engine* e, uint32_t what) noexcept nogil:
    """Has the socket asked this of the connection that the slot holds now?"""
    return e.pipe != NULL and e.pipe.asked.load() & what


cdef void _kick(void* far, uint32_t what) noexcept nogil:
    cdef Engine* e = <Engine*> far
    if what & (DIRTY_RESET | DIRTY_SHUT):
        engine_post(e, E_ASKED)
    elif what & DIRTY_IN:
        engine_post(e, E_IN)  # reading is not the caller's work
    if what & DIRTY_OUT:
        engine_kick_out(e)


cdef void _kick_later(void* far, uint32_t what) noexcept nogil:
    engine_post(<Engine*> far, (E_OUT if what & DIRTY_OUT else 0) | (E_IN if what & DIRTY_IN else 0)
                | (E_ASKED if what & (DIRTY_RESET | DIRTY_SHUT) else 0))


cdef void _close(void* far) noexcept nogil:
    engine_post(<Engine*> far, E_ASKED)


cdef FarOps FAR
FAR.kick = _kick
FAR.kick_later = _kick_later
FAR.close = _close


cdef void lease_init(Engine* e) noexcept nogil:
    e.far_ops = &FAR
    if e.task.run == NULL:    # the last tenant's may be posted still
        e.task.run = _run_task
