"""The answering side: see answer.pxd."""

from libc.string cimport memcmp

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_MORE, MSG_ROUTING_ID, msg_close, msg_copy, msg_data, msg_init, msg_size,
    vec_clear, vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport (
    MQ_DROPPED, MQ_FULL, MQ_INVALID, MQ_NO_PEER, MQ_OK, MQ_STATE,
)
from mqcore.protocols.routing.fair_queue cimport fq_read, fq_waiting, pipe_skip, vec_cut
from mqcore.protocols.routing.numbered cimport numbered_fini
from mqcore.protocols.routing.peers cimport peers_number
from mqcore.protocols.routing.ring cimport ring_front
from mqcore.protocols.routing.stub cimport close_all
from mqcore.protocols.routing.words cimport envelope_ahead, envelope_of, hop_init, hop_read
from mqcore.spi.pattern cimport PAT_EXCHANGE, Q_CAN_RECV, Q_CAN_SEND
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_HOPS, DROP_MALFORMED, DROP_PEER_GONE, Pipe, pipe_delivered, pipe_drop_in,
    pipe_drop_out, pipe_write,
)


cdef int answer_init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void answer_fini(Pattern* self) noexcept nogil:
    cdef Answerer* a = <Answerer*> self
    numbered_fini(self)
    vec_fini(&a.envelope)
    vec_fini(&a.wire)


# -- requests --------------------------------------------------------------------------------------

cdef int answer_next(Answerer* a, MsgVec* out) noexcept nogil:
    """The next well-formed request, its envelope flagged, counted as delivered."""
    cdef size_t at = out.n
    cdef size_t front, i
    cdef Pipe* p = NULL
    cdef int rc
    while True:
        rc = fq_read(&a.base.inn, out, &p)
        if rc:
            return rc
        front = envelope_of(out.at + at, out.n - at)
        if front != 0 and front - 1 <= a.base.head.host.max_hops:
            for i in range(at, at + front):
                out.at[i].flags |= MSG_ENVELOPE
            pipe_delivered(p)
            return MQ_OK
        pipe_drop_in(p, DROP_HOPS if front else DROP_MALFORMED)
        vec_cut(out, at)


cdef int answer_remember(Answerer* a, Msg* parts, size_t n) noexcept nogil:
    cdef size_t k = 0
    cdef Msg m
    vec_clear(&a.envelope)
    a.asker = 0
    while k < n and parts[k].flags & MSG_ENVELOPE:
        k += 1
    if k > a.envelope.cap and vec_grow(&a.envelope, k):
        return MQ_OK          # out of memory: only the plain answer is lost
    for k in range(k):
        msg_copy(&m, &parts[k])
        m.flags = MSG_MORE
        vec_push(&a.envelope, &m)
    a.asker = parts[0].peer
    return MQ_OK


cdef int answer_recv_raw(Answerer* a, MsgVec* out) noexcept nogil:
    cdef size_t at = out.n
    cdef size_t i
    cdef Msg hop
    cdef int rc
    msg_init(&hop)
    rc = vec_push(out, &hop)  # its place; whose it is shows with the message
    if rc:
        return rc
    rc = answer_next(a, out)
    if rc:
        vec_cut(out, at)
        return rc
    for i in range(at + 1, out.n):
        out.at[i].flags &= MSG_MORE
    hop_init(&out.at[at], out.at[at + 1].peer)
    out.at[at].flags |= MSG_ROUTING_ID
    out.at[at].peer = out.at[at + 1].peer
    return MQ_OK


cdef int answer_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Answerer* a = <Answerer*> self
    cdef size_t at = out.n
    cdef int rc
    if a.raw:
        return answer_recv_raw(a, out)
    rc = answer_next(a, out)
    return rc if rc else answer_remember(a, out.at + at, out.n - at)


# -- answers ---------------------------------------------------------------------------------------

cdef int answer_write(Pipe* pipe, Msg* parts, size_t n) noexcept nogil:
    """MQ_OK, MQ_DROPPED (the parts are closed), MQ_NOMEM."""
    cdef int rc = pipe_write(pipe, parts, n)
    if rc != MQ_FULL:
        return rc
    pipe_drop_out(pipe, DROP_FULL)
    close_all(parts, n)
    return MQ_DROPPED


cdef int answer_gone(Answerer* a, Msg* parts, size_t n) noexcept nogil:
    """The peer that this reply is for has left."""
    a.base.head.host.dropped[DROP_PEER_GONE] += 1
    close_all(parts, n)
    return MQ_DROPPED


cdef int answer_send_raw(Answerer* a, Msg* parts, size_t n) noexcept nogil:
    cdef uint32_t number
    cdef Pipe* pipe
    cdef int rc
    if n < 2 or not hop_read(&parts[0], &number):
        return MQ_INVALID
    pipe = peers_number(&a.base.peers, number)
    if pipe == NULL:
        return answer_gone(a, parts, n)
    rc = answer_write(pipe, parts + 1, n - 1)
    if rc == MQ_OK or rc == MQ_DROPPED:
        msg_close(&parts[0])
    return rc


cdef int answer_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Answerer* a = <Answerer*> self
    cdef Pipe* pipe
    cdef size_t i, front = a.envelope.n
    cdef int rc
    if a.raw:
        return answer_send_raw(a, parts, n)
    if a.asker == 0:
        return MQ_STATE
    pipe = peers_number(&a.base.peers, a.asker)
    if pipe == NULL:
        rc = answer_gone(a, parts, n)
    else:
        if a.wire.cap < front + n:
            rc = vec_grow(&a.wire, front + n)
            if rc:
                return rc
        for i in range(front):
            a.wire.at[i] = a.envelope.at[i]
        for i in range(n):
            a.wire.at[front + i] = parts[i]
        rc = answer_write(pipe, a.wire.at, front + n)
        if rc != MQ_OK and rc != MQ_DROPPED:
            return rc         # the handles are still where they were
        a.envelope.n = 0      # moved
    a.asker = 0
    return rc


cdef void answer_settle(Answerer* a, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    """An answer by send_to to the request that a plain send would answer: that is done too."""
    cdef size_t i
    if peer != a.asker or n <= a.envelope.n:
        return
    for i in range(a.envelope.n):
        if msg_size(&parts[i]) != msg_size(&a.envelope.at[i]) or memcmp(
                msg_data(&parts[i]), msg_data(&a.envelope.at[i]), msg_size(&parts[i])) != 0:
            return
    a.asker = 0


cdef int answer_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Answerer* a = <Answerer*> self
    cdef Pipe* pipe = peers_number(&a.base.peers, peer)
    cdef size_t i, k = 0
    cdef int rc
    answer_settle(a, peer, parts, n)
    if pipe == NULL:
        a.base.head.host.dropped[DROP_PEER_GONE] += 1
        return MQ_NO_PEER
    while k < n and parts[k].flags & MSG_ENVELOPE:
        parts[k].flags &= ~MSG_ENVELOPE & 0xff   # ours alone: the peer may be in this process
        k += 1
    rc = answer_write(pipe, parts, n)
    if rc != MQ_OK and rc != MQ_DROPPED:
        for i in range(k):
            parts[i].flags |= MSG_ENVELOPE
    return rc


cdef int64_t answer_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    cdef Answerer* a = <Answerer*> self
    if what == Q_CAN_SEND:
        return a.raw or a.asker != 0
    if what == Q_CAN_RECV:
        return answer_waiting(a)
    return -1


cdef bint answer_waiting(Answerer* a) noexcept nogil:
    """Would answer_next give a request? What it would drop is dropped."""
    cdef size_t front
    cdef Pipe* p
    while fq_waiting(&a.base.inn):
        p = ring_front(&a.base.inn.ring)
        front = envelope_ahead(p)
        if front != 0 and front - 1 <= a.base.head.host.max_hops:
            return True
        pipe_skip(p)
        pipe_drop_in(p, DROP_HOPS if front else DROP_MALFORMED)
    return False


# -- raw -------------------------------------------------------------------------------------------

cdef void answer_set_raw(Answerer* a, bint on) noexcept nogil:
    a.raw = on
    a.asker = 0
    vec_clear(&a.envelope)
    a.base.head.host.without = PAT_EXCHANGE if on else 0
