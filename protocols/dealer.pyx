"""DEALER: sends to its peers in turn and receives from them in turn, without envelope or order
between the two. Peers: REP (the application writes the empty delimiter), DEALER, ROUTER.

CLIENT (RFC 41): the same with messages of one part. Peer: SERVER."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport strcmp

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.status cimport MQ_OK
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_readable, fq_recv, fq_waiting,
)
from mqcore.protocols.routing.load_balance cimport (
    LoadBalance, lb_attach, lb_can_send, lb_detach, lb_fini, lb_hangup, lb_init, lb_send,
    lb_set_option, lb_writable,
)
from mqcore.protocols.routing.stub cimport probe
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_IDENTITY, PAT_RECV, PAT_REROUTE, PAT_SEND, PAT_SINGLE, PAT_WAITS, PAT_WORDS,
    PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe

cdef struct Dealer:
    Pattern head
    LoadBalance out
    FairQueue inn
    bint probe


cdef int dealer_init(Pattern* self) noexcept nogil:
    lb_init(&(<Dealer*> self).out)
    (<Dealer*> self).inn.parts = 1 if self.ops.flags & PAT_SINGLE else 0
    return MQ_OK


cdef void dealer_fini(Pattern* self) noexcept nogil:
    lb_fini(&(<Dealer*> self).out)
    fq_fini(&(<Dealer*> self).inn)


cdef int dealer_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                           size_t size) noexcept nogil:
    if strcmp(name, "probe") != 0:
        return lb_set_option(&(<Dealer*> self).out, self.host, name, number)
    (<Dealer*> self).probe = number != 0
    return MQ_OK


cdef int dealer_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Dealer* dealer = <Dealer*> self
    cdef int rc = fq_attach(&dealer.inn, pipe)
    if rc:
        return rc
    rc = lb_attach(&dealer.out, pipe)
    if rc:
        fq_detach(&dealer.inn, pipe)
    elif dealer.probe:
        probe(pipe)
    return rc


cdef void dealer_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_detach(&(<Dealer*> self).out, pipe)
    fq_detach(&(<Dealer*> self).inn, pipe)


cdef void dealer_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_hangup(&(<Dealer*> self).out, pipe)


cdef void dealer_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Dealer*> self).inn, pipe)


cdef void dealer_writable(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_writable(&(<Dealer*> self).out, pipe)


cdef int dealer_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Pipe* taker = NULL
    return lb_send(&(<Dealer*> self).out, parts, n, &taker)


cdef int dealer_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<Dealer*> self).inn, out)


cdef int64_t dealer_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    if what == Q_CAN_SEND:
        return lb_can_send(&(<Dealer*> self).out)
    return fq_waiting(&(<Dealer*> self).inn) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_WAITS | PAT_REROUTE | PAT_IDENTITY | PAT_CONFLATE | PAT_WORDS,
    size=sizeof(Dealer),
    init=dealer_init,
    fini=dealer_fini,
    set_option=dealer_set_option,
    attach=dealer_attach,
    detach=dealer_detach,
    hangup=dealer_hangup,
    readable=dealer_readable,
    writable=dealer_writable,
    send=dealer_send,
    recv=dealer_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=dealer_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "dealer", 5, "DEALER", 0x30, ("rep", "dealer", "router"),
    (("probe", "bool", False, "send an empty message to each new peer before anything else"),),
    "sends to its peers in turn, receives from them in turn",
)

cdef PatternOps CLIENT = OPS
CLIENT.flags = PAT_SEND | PAT_RECV | PAT_WAITS | PAT_REROUTE | PAT_SINGLE

client = plugin_new(&CLIENT, "client", -1, "CLIENT", -1, ("server",), (),
                    "messages of one part to and from the servers in turn")
