"""A survey of SURVEYOR: its states, and the answers that were read and not yet received."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memmove

from mqcore.base.message cimport MSG_MORE, Msg, MsgVec, msg_close, vec_grow, vec_push
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.protocols.routing.fair_queue cimport FairQueue
from mqcore.protocols.routing.fanout cimport Fanout
from mqcore.protocols.routing.peers cimport Peers, peers_number
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport DROP_LATE, Pipe, pipe_drop_in

cdef enum:                    # Survey.state
    IDLE = 0
    OPEN = 1
    OVER = 2                  # takes no more answers; the application has not received MQ_OVER yet

cdef enum:
    FRONT = 2                 # parts before a body: the id and the empty one
    NEVER = -1                # Survey.limit: the same as the socket's

cdef struct Survey:
    uint32_t context          # 0: the socket's own
    int state
    uint32_t id               # OPEN: the id in its answers
    int64_t end               # OPEN: its end, ns
    int64_t limit             # duration of the next survey, ns, or NEVER
    MsgVec queue              # answers read but not yet received, the next one at `head`
    size_t head
    size_t waiting            # number of answers
    Survey* next

cdef struct Surveyor:
    Pattern head
    FairQueue inn
    Fanout out
    Peers numbers             # by Pipe.id: peers with unread answers
    Survey own
    Survey* all               # `own` is the last
    uint32_t open             # number of open surveys
    uint32_t id               # of the last survey
    int64_t limit             # ns, option `deadline`
    MsgVec wire               # scratch: the survey as sent
    bint raw


cdef inline Survey* surveyor_of(Surveyor* s, uint32_t context) noexcept nogil:
    cdef Survey* survey = s.all
    while survey != NULL and survey.context != context:
        survey = survey.next
    return survey


cdef inline Survey* surveyor_by_id(Surveyor* s, uint32_t id) noexcept nogil:
    cdef Survey* survey = s.all
    while survey != NULL and (survey.state != OPEN or survey.id != id):
        survey = survey.next
    return survey


cdef inline bint queue_full(Surveyor* s, Survey* survey, Pipe* p) noexcept nogil:
    cdef int64_t most = p.inn.hwm_msgs
    return most < INT64_MAX // 65536 and <int64_t> survey.waiting >= most * <int64_t> s.numbers.n


cdef inline int queue_put(Survey* survey, Msg* parts, size_t n) noexcept nogil:
    cdef MsgVec* q = &survey.queue
    cdef size_t i
    if survey.head * 2 > q.n:          # more than half was received: compact
        q.n -= survey.head
        memmove(q.at, q.at + survey.head, q.n * sizeof(Msg))
        survey.head = 0
    if q.cap - q.n < n and vec_grow(q, q.n + n):
        return MQ_NOMEM
    for i in range(n):
        vec_push(q, &parts[i])
    survey.waiting += 1
    return MQ_OK


cdef inline int queue_take(Survey* survey, MsgVec* out) noexcept nogil:
    """Take the next answer, whole; there must be one."""
    cdef MsgVec* q = &survey.queue
    cdef size_t n = 1
    cdef size_t i
    while q.at[survey.head + n - 1].flags & MSG_MORE:
        n += 1
    if out.cap - out.n < n and vec_grow(out, out.n + n):
        return MQ_NOMEM
    for i in range(n):
        vec_push(out, &q.at[survey.head + i])
    survey.head += n
    survey.waiting -= 1
    if survey.waiting == 0:
        q.n = 0
        survey.head = 0
    return MQ_OK


cdef inline void queue_drop(Surveyor* s, Survey* survey) noexcept nogil:
    """Its contents will never be received: count them as late instead of delivered."""
    cdef MsgVec* q = &survey.queue
    cdef Pipe* p
    cdef Msg* m
    while survey.head < q.n:
        m = &q.at[survey.head]
        if not m.flags & MSG_MORE:
            p = peers_number(&s.numbers, m.peer)
            if p == NULL:     # the peer's counters are closed
                s.head.host.dropped[DROP_LATE] += 1
            else:
                p.delivered -= 1
                pipe_drop_in(p, DROP_LATE)
        msg_close(m)
        survey.head += 1
    q.n = 0
    survey.head = 0
    survey.waiting = 0
