"""SERVER (RFC 41): each peer by its number, messages of one part. Peer: CLIENT.

The routing id is `Pipe.id`: 32 bits, never 0, never used twice. A received message carries it in
`Msg.peer`, and `send_to` takes it back. Nothing is dropped: who is at its mark is waited for, and a
number that nobody has any more is the sender's error.

PEER (RFC 51): the same between equals. Peer: PEER.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.status cimport MQ_INVALID, MQ_NO_PEER, MQ_OK
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_readable, fq_recv, fq_waiting,
)
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.stub cimport no_event, no_option
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_RECV, PAT_SEND, PAT_SINGLE, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern,
    PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe, pipe_write

cdef struct Server:
    Pattern head
    FairQueue inn
    Peers peers               # who can be written to, by Pipe.id


cdef int server_init(Pattern* self) noexcept nogil:
    (<Server*> self).inn.parts = 1
    return MQ_OK


cdef void server_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Server*> self).inn)
    peers_fini(&(<Server*> self).peers)


cdef int server_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Server* server = <Server*> self
    cdef int rc = fq_attach(&server.inn, pipe)
    if rc:
        return rc
    rc = peers_add(&server.peers, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(&server.inn, pipe)
    return rc


cdef void server_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    peers_remove(&(<Server*> self).peers, hash_number(pipe.id), pipe)


cdef void server_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    server_hangup(self, pipe)
    fq_detach(&(<Server*> self).inn, pipe)


cdef void server_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Server*> self).inn, pipe)


cdef int server_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    return MQ_INVALID         # whom for?


cdef int server_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Pipe* pipe = peers_number(&(<Server*> self).peers, peer)
    return MQ_NO_PEER if pipe == NULL else pipe_write(pipe, parts, n)


cdef int server_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<Server*> self).inn, out)


cdef int64_t server_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    if what == Q_CAN_SEND:    # to whom is known only with the message
        return 1
    return fq_waiting(&(<Server*> self).inn) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_ADDRESSES | PAT_SINGLE,
    size=sizeof(Server),
    init=server_init,
    fini=server_fini,
    set_option=no_option,
    attach=server_attach,
    detach=server_detach,
    hangup=server_hangup,
    readable=server_readable,
    writable=no_event,
    send=server_send,
    recv=server_recv,
    send_to=server_send_to,
    subscribe=NULL,
    abandon=NULL,
    query=server_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "server", -1, "SERVER", -1, ("client",), (),
                     "each client by its number, messages of one part")
peer = plugin_new(&OPS, "peer", -1, "PEER", -1, ("peer",), (),
                  "each peer by its number, messages of one part")
