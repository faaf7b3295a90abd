"""PULL: receives from all its peers, one message from each in turn. Peer: PUSH.

GATHER (RFC 49): the same with messages of one part. Peer: SCATTER."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport MsgVec
from mqcore.base.status cimport MQ_OK
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_readable, fq_recv, fq_waiting,
)
from mqcore.protocols.routing.stub cimport no_event, no_option, no_send
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_RECV, PAT_SINGLE, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps,
    plugin_new,
)
from mqcore.spi.pipe cimport Pipe

cdef struct Pull:
    Pattern head
    FairQueue inn


cdef int pull_init(Pattern* self) noexcept nogil:
    (<Pull*> self).inn.parts = 1 if self.ops.flags & PAT_SINGLE else 0
    return MQ_OK


cdef void pull_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Pull*> self).inn)


cdef int pull_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    return fq_attach(&(<Pull*> self).inn, pipe)


cdef void pull_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_detach(&(<Pull*> self).inn, pipe)


cdef void pull_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Pull*> self).inn, pipe)


cdef int pull_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<Pull*> self).inn, out)


cdef int64_t pull_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    if what == Q_CAN_RECV:
        return fq_waiting(&(<Pull*> self).inn)
    return 0 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_RECV | PAT_CONFLATE,
    size=sizeof(Pull),
    init=pull_init,
    fini=pull_fini,
    set_option=no_option,
    attach=pull_attach,
    detach=pull_detach,
    hangup=no_event,
    readable=pull_readable,
    writable=no_event,
    send=no_send,
    recv=pull_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=pull_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "pull", 7, "PULL", 0x51, ("push",), (),
                     "receives from all peers, one message from each in turn")

cdef PatternOps GATHER = OPS
GATHER.flags = PAT_RECV | PAT_SINGLE

gather = plugin_new(&GATHER, "gather", -1, "GATHER", -1, ("scatter",), (),
                    "receives messages of one part from all peers, in turn")
