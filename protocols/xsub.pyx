"""XSUB: a SUB whose subscriptions are messages, and that may talk back. Peers: PUB, XPUB.

A single-part message that starts with 01 or 00 subscribes or cancels the topic behind that byte; it
travels as an ordinary message. Topics are kept and told to each new publisher, as control handles.
Any other message goes up to all publishers; who is at its mark loses it, counted. What arrives is
not filtered."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec, msg_data, msg_size
from mqcore.base.status cimport MQ_INVALID, MQ_OK
from mqcore.protocols.routing.distribute cimport targets_send
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_readable, fq_recv, fq_waiting,
)
from mqcore.protocols.routing.interest cimport (
    Interest, interest_attach, interest_change, interest_fini, interest_hangup, interest_set,
)
from mqcore.protocols.routing.stub cimport close_all, no_event, no_option
from mqcore.spi.pattern cimport (
    PAT_FANOUT, PAT_RECV, PAT_SEND, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Q_TOPICS, Pattern,
    PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe

cdef struct XSub:
    Pattern head
    FairQueue inn
    Interest it


cdef int xsub_init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void xsub_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<XSub*> self).inn)
    interest_fini(&(<XSub*> self).it)


cdef int xsub_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef XSub* sub = <XSub*> self
    cdef int rc = fq_attach(&sub.inn, pipe)
    if rc:
        return rc
    rc = interest_attach(&sub.it, pipe)
    if rc:
        fq_detach(&sub.inn, pipe)
    return rc


cdef void xsub_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<XSub*> self).it, pipe)


cdef void xsub_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<XSub*> self).it, pipe)
    fq_detach(&(<XSub*> self).inn, pipe)


cdef void xsub_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<XSub*> self).inn, pipe)


cdef int xsub_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef XSub* sub = <XSub*> self
    cdef const uint8_t* data = msg_data(&parts[0])
    cdef size_t size = msg_size(&parts[0])
    cdef bint about_topics = n == 1 and size > 0 and data[0] <= 1
    cdef bint tell = True
    cdef int rc
    if about_topics:
        rc = interest_change(&sub.it, data + 1, size - 1, data[0], &tell)
        if rc != MQ_OK and rc != MQ_INVALID:
            return rc
        if rc == MQ_INVALID:  # to cancel what is not held changes nothing
            tell = False
    elif sub.it.peers.n == 0:
        self.host.unmatched += 1
    if tell:
        targets_send(&sub.it.peers, parts, n, about_topics)
    close_all(parts, n)
    return MQ_OK


cdef int xsub_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<XSub*> self).inn, out)


cdef int xsub_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    return interest_set(&(<XSub*> self).it, topic, size, on != 0)


cdef int64_t xsub_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    if what == Q_CAN_RECV:
        return fq_waiting(&(<XSub*> self).inn)
    if what == Q_TOPICS:
        return <int64_t> (<XSub*> self).it.topics.n
    return 1 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_FANOUT,
    size=sizeof(XSub),
    init=xsub_init,
    fini=xsub_fini,
    set_option=no_option,
    attach=xsub_attach,
    detach=xsub_detach,
    hangup=xsub_hangup,
    readable=xsub_readable,
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
                     "a SUB whose subscriptions are messages, and that may talk back")
