"""PUSH: sends each message to one of its peers, in turn. Peer: PULL.

Without peers, or with all peers at their HWMs, it takes no message (the socket waits).
Messages that a peer sends to a PUSH are read and counted as dropped, so that they do not
accumulate.

SCATTER (RFC 49): the same with messages of one part. Peer: GATHER."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg
from mqcore.base.status cimport MQ_OK
from mqcore.protocols.routing.fair_queue cimport FairQueue, fq_fini, pipe_discard
from mqcore.protocols.routing.load_balance cimport (
    LoadBalance, lb_attach, lb_can_send, lb_detach, lb_fini, lb_hangup, lb_init, lb_send,
    lb_set_option, lb_writable,
)
from mqcore.protocols.routing.stub cimport no_recv
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_REROUTE, PAT_SEND, PAT_SERVICE, PAT_SINGLE, PAT_WAITS, PATTERN_ABI,
    Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport DROP_UNEXPECTED, Pipe

cdef struct Push:
    Pattern head
    LoadBalance out
    FairQueue inn             # only its scratch


cdef int push_init(Pattern* self) noexcept nogil:
    lb_init(&(<Push*> self).out)
    return MQ_OK


cdef void push_fini(Pattern* self) noexcept nogil:
    lb_fini(&(<Push*> self).out)
    fq_fini(&(<Push*> self).inn)


cdef int push_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                         size_t size) noexcept nogil:
    return lb_set_option(&(<Push*> self).out, self.host, name, number)


cdef int push_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    return lb_attach(&(<Push*> self).out, pipe)


cdef void push_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_detach(&(<Push*> self).out, pipe)


cdef void push_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_hangup(&(<Push*> self).out, pipe)


cdef void push_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    pipe_discard(pipe, &(<Push*> self).inn.scratch, DROP_UNEXPECTED)


cdef void push_writable(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_writable(&(<Push*> self).out, pipe)


cdef int push_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Pipe* taker = NULL
    return lb_send(&(<Push*> self).out, parts, n, &taker)


cdef int64_t push_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    if what == Q_CAN_SEND:
        return lb_can_send(&(<Push*> self).out)
    return 0 if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_WAITS | PAT_REROUTE | PAT_CONFLATE | PAT_SERVICE,
    size=sizeof(Push),
    init=push_init,
    fini=push_fini,
    set_option=push_set_option,
    attach=push_attach,
    detach=push_detach,
    hangup=push_hangup,
    readable=push_readable,
    writable=push_writable,
    send=push_send,
    recv=no_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=push_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "push", 8, "PUSH", 0x50, ("pull",), (),
                     "sends each message to one of its peers, in turn")

cdef PatternOps SCATTER = OPS
SCATTER.flags = PAT_SEND | PAT_WAITS | PAT_REROUTE | PAT_SERVICE | PAT_SINGLE

scatter = plugin_new(&SCATTER, "scatter", -1, "SCATTER", -1, ("gather",), (),
                     "sends each message, of one part, to one of its peers, in turn")
