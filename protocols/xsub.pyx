"""XSUB: a SUB whose subscriptions are messages, and that can send to publishers. Peers: PUB, XPUB.

A single-part message that starts with 01 or 00 subscribes or cancels the rest as a topic; it is
transmitted as an ordinary message. What an XPUB says of its subscribers, when a device forwards it,
is counted apart: see MSG_LAST. Topics are kept and sent to each new publisher as control
handles. Any other message goes to all publishers. A publisher at its HWM misses it,
counted. Received messages are not filtered."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport MSG_LAST, MSG_NOTE, Msg, MsgVec, msg_data, msg_size
from mqcore.base.status cimport MQ_INVALID, MQ_OK
from mqcore.protocols.routing.distribute cimport targets_send
from mqcore.protocols.routing.fair_queue cimport fq_recv, fq_waiting
from mqcore.protocols.routing.follow cimport (
    Follower, follow_attach, follow_detach, follow_fini, follow_hangup, follow_init,
    follow_readable,
)
from mqcore.protocols.routing.interest cimport interest_change, interest_note, interest_set
from mqcore.protocols.routing.stub cimport close_all, no_event, no_option
from mqcore.spi.pattern cimport (
    PAT_FANOUT, PAT_RECV, PAT_SEND, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Q_TOPICS, Pattern,
    PatternOps, plugin_new,
)


cdef int xsub_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Follower* sub = <Follower*> self
    cdef const uint8_t* data = msg_data(&parts[0])
    cdef size_t size = msg_size(&parts[0])
    cdef bint about_topics = n == 1 and size > 0 and data[0] <= 1
    cdef bint note = parts[0].flags & MSG_NOTE
    cdef bint last = parts[0].flags & MSG_LAST
    cdef bint tell = True
    cdef int rc
    if about_topics:
        if note:
            rc = interest_note(&sub.it, data + 1, size - 1, data[0], last, &tell)
        else:
            rc = interest_change(&sub.it, data + 1, size - 1, data[0], &tell)
        if rc != MQ_OK and rc != MQ_INVALID:
            return rc
        if rc == MQ_INVALID:  # canceling an unknown topic changes nothing
            tell = False
    elif sub.it.peers.n == 0:
        self.host.unmatched += 1
    parts[0].flags &= ~(MSG_NOTE | MSG_LAST) & 0xff    # for us alone
    if tell:
        targets_send(&sub.it.peers, parts, n, about_topics)
    close_all(parts, n)
    return MQ_OK


cdef int xsub_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<Follower*> self).inn, out)


cdef int xsub_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    return interest_set(&(<Follower*> self).it, topic, size, on != 0)


cdef int64_t xsub_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    if what == Q_CAN_RECV:
        return fq_waiting(&(<Follower*> self).inn)
    if what == Q_TOPICS:
        return <int64_t> (<Follower*> self).it.topics.n
    return 1 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_FANOUT,
    size=sizeof(Follower),
    init=follow_init,
    fini=follow_fini,
    set_option=no_option,
    attach=follow_attach,
    detach=follow_detach,
    hangup=follow_hangup,
    readable=follow_readable,
    writable=no_event,
    send=xsub_send,
    recv=xsub_recv,
    send_to=NULL,
    subscribe=xsub_subscribe,
    abandon=NULL,
    query=xsub_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "xsub", 10, "XSUB", 0x21, ("pub", "xpub"), (),
                     "a SUB whose subscriptions are messages, and that can send to publishers")
