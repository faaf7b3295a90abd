"""DISH: receives messages of the groups that it joined (RFC 48). Peers: RADIO.

`recv` gives [group, body], the group flagged MSG_ENVELOPE and MSG_GROUP: `recv()` hides it and
`Message.group` shows it. Most radios filter, but udp does not, and a group may be left while its
message is in flight. So this socket filters again and counts. It also drops and counts messages
that are not a group of at most 255 bytes and one body. Radios are read in turn.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_MORE, Msg, MsgVec, msg_data, msg_size,
)
from mqcore.base.status cimport MQ_INVALID, MQ_OK
from mqcore.base.yqueue cimport yqueue_second
from mqcore.protocols.routing.fair_queue cimport fq_read, pipe_look, pipe_skip, vec_cut
from mqcore.protocols.routing.follow cimport (
    Follower, follow_attach, follow_detach, follow_fini, follow_hangup, follow_init,
    follow_readable,
)
from mqcore.protocols.routing.groups cimport GROUP_MAX
from mqcore.protocols.routing.interest cimport interest_set
from mqcore.protocols.routing.ring cimport ring_drop, ring_front
from mqcore.protocols.routing.stub cimport no_event, no_option, no_send
from mqcore.protocols.routing.topics cimport topics_find
from mqcore.spi.pattern cimport (
    PAT_GROUPS, PAT_RECV, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Q_TOPICS, Pattern, PatternOps,
    plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_MALFORMED, DROP_UNSUBSCRIBED, Pipe, pipe_delivered, pipe_drop_in,
)

cdef enum:
    WANTED = -1               # no reason to drop the message


# -- messages --------------------------------------------------------------------------------------

cdef inline int dish_judge(Follower* dish, Msg* group, Msg* body) noexcept nogil:
    """WANTED, or the reason to drop it. body: the part after the group, NULL if there is none."""
    if body == NULL or body.flags & MSG_MORE or msg_size(group) > GROUP_MAX:
        return DROP_MALFORMED
    if topics_find(&dish.it.topics, msg_data(group), msg_size(group)) == NULL:
        return DROP_UNSUBSCRIBED
    return WANTED


cdef int dish_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Follower* dish = <Follower*> self
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef int rc, verdict
    while True:
        rc = fq_read(&dish.inn, out, &p)
        if rc:
            return rc
        verdict = dish_judge(dish, &out.at[at], &out.at[at + 1] if out.n - at > 1 else NULL)
        if verdict == WANTED:
            out.at[at].flags |= MSG_ENVELOPE | MSG_GROUP
            pipe_delivered(p)
            return MQ_OK
        pipe_drop_in(p, <uint32_t> verdict)
        vec_cut(out, at)


cdef bint dish_can_recv(Follower* dish) noexcept nogil:
    """Drops unwanted messages, so that the result is exact."""
    cdef Pipe* p
    cdef Msg* m
    cdef int verdict
    while True:
        p = ring_front(&dish.inn.ring)
        if p == NULL:
            return False
        m = pipe_look(p)
        if m == NULL:
            ring_drop(&dish.inn.ring)
            continue
        verdict = dish_judge(dish, m, yqueue_second(&p.inn.q.q) if m.flags & MSG_MORE else NULL)
        if verdict == WANTED:
            return True
        pipe_skip(p)
        pipe_drop_in(p, <uint32_t> verdict)


cdef int dish_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    if size > GROUP_MAX:
        return MQ_INVALID
    return interest_set(&(<Follower*> self).it, topic, size, on != 0)


cdef int64_t dish_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    if what == Q_CAN_RECV:
        return dish_can_recv(<Follower*> self)
    if what == Q_TOPICS:
        return <int64_t> (<Follower*> self).it.topics.n
    return 0 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_RECV | PAT_GROUPS,
    size=sizeof(Follower),
    init=follow_init,
    fini=follow_fini,
    set_option=no_option,
    attach=follow_attach,
    detach=follow_detach,
    hangup=follow_hangup,
    readable=follow_readable,
    writable=no_event,
    send=no_send,
    recv=dish_recv,
    send_to=NULL,
    subscribe=dish_subscribe,
    abandon=NULL,
    query=dish_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "dish", -1, "DISH", -1, ("radio",), (),
                     "receives messages of the groups that it joined")
