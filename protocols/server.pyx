"""SERVER (RFC 41): each peer by its number, messages of one part. Peer: CLIENT.

The routing id is `Pipe.id`: 32 bits, never 0, never used twice. A received message carries it in
`Msg.peer`, and `send_to` takes it back. Nothing is dropped: a send waits for a peer at its
HWM, and the number of a peer that has left is the sender's error.

PEER (RFC 51): the same between equals. Peer: PEER.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.status cimport MQ_INVALID, MQ_NO_PEER, MQ_OK
from mqcore.protocols.routing.fair_queue cimport fq_recv, fq_waiting
from mqcore.protocols.routing.numbered cimport (
    Numbered, numbered_attach, numbered_detach, numbered_fini, numbered_hangup, numbered_readable,
)
from mqcore.protocols.routing.peers cimport peers_number
from mqcore.protocols.routing.stub cimport no_event, no_option
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_RECV, PAT_SEND, PAT_SINGLE, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern,
    PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe, pipe_write


cdef int server_init(Pattern* self) noexcept nogil:
    (<Numbered*> self).inn.parts = 1
    return MQ_OK


cdef int server_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    return MQ_INVALID         # the message names no receiver


cdef int server_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Pipe* pipe = peers_number(&(<Numbered*> self).peers, peer)
    return MQ_NO_PEER if pipe == NULL else pipe_write(pipe, parts, n)


cdef int server_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<Numbered*> self).inn, out)


cdef int64_t server_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    if what == Q_CAN_SEND:    # only the message names its receiver
        return 1
    return fq_waiting(&(<Numbered*> self).inn) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_ADDRESSES | PAT_SINGLE,
    size=sizeof(Numbered),
    init=server_init,
    fini=numbered_fini,
    set_option=no_option,
    attach=numbered_attach,
    detach=numbered_detach,
    hangup=numbered_hangup,
    readable=numbered_readable,
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
