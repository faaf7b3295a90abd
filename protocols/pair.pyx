"""PAIR: exactly one peer, in both directions. Peer: PAIR.

A second peer is refused while the first is connected. Messages of a disconnected peer may still be
unread. The next peer is accepted at once, and both are read in turn until the old one is empty.

CHANNEL (RFC 52): the same with messages of one part. Peer: CHANNEL.

DGRAM: the one peer is a datagram socket (udp) and everything that it exchanges datagrams with. A
message is an address like "192.0.2.1:5555" and a body. In `recv` the first part is the sender, in
`send` the receiver.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport MSG_ROUTING_ID, Msg, MsgVec, msg_data, msg_size
from mqcore.base.status cimport MQ_AGAIN, MQ_INVALID, MQ_OK, MQ_STATE
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_readable, fq_recv, fq_waiting,
)
from mqcore.protocols.routing.stub cimport no_event, no_option, tell_refused
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_EXCLUSIVE, PAT_RECV, PAT_REROUTE, PAT_SEND, PAT_SINGLE, PAT_WAITS,
    PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe, pipe_has_room, pipe_write
from mqcore.spi.sockaddr cimport Sockaddr, sockaddr_parse

cdef struct Pair:
    Pattern head
    FairQueue inn
    Pipe* peer                # the peer to write to


cdef int pair_init(Pattern* self) noexcept nogil:
    (<Pair*> self).inn.parts = 1 if self.ops.flags & PAT_SINGLE else 0
    return MQ_OK


cdef void pair_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Pair*> self).inn)


cdef int pair_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Pair* pair = <Pair*> self
    cdef int rc
    if pair.peer != NULL:
        tell_refused(pipe, "this pair has its peer", 22)
        return MQ_STATE
    rc = fq_attach(&pair.inn, pipe)
    if rc == MQ_OK:
        pair.peer = pipe
    return rc


cdef void pair_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    if (<Pair*> self).peer == pipe:
        (<Pair*> self).peer = NULL


cdef void pair_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    pair_hangup(self, pipe)
    fq_detach(&(<Pair*> self).inn, pipe)


cdef void pair_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Pair*> self).inn, pipe)


cdef int pair_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Pipe* peer = (<Pair*> self).peer
    return MQ_AGAIN if peer == NULL else pipe_write(peer, parts, n)


cdef int pair_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return fq_recv(&(<Pair*> self).inn, out)


cdef int64_t pair_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    cdef Pair* pair = <Pair*> self
    if what == Q_CAN_SEND:
        return pair.peer != NULL and pipe_has_room(pair.peer, 0)
    return fq_waiting(&pair.inn) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_WAITS | PAT_REROUTE | PAT_EXCLUSIVE,
    size=sizeof(Pair),
    init=pair_init,
    fini=pair_fini,
    set_option=no_option,
    attach=pair_attach,
    detach=pair_detach,
    hangup=pair_hangup,
    readable=pair_readable,
    writable=no_event,
    send=pair_send,
    recv=pair_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=pair_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "pair", 0, "PAIR", 0x10, ("pair",), (), "exactly one peer, both ways")

cdef PatternOps CHANNEL = OPS
CHANNEL.flags |= PAT_SINGLE

channel = plugin_new(&CHANNEL, "channel", -1, "CHANNEL", -1, ("channel",), (),
                     "exactly one peer, both ways, messages of one part")


# -- DGRAM -----------------------------------------------------------------------------------------

cdef int dgram_init(Pattern* self) noexcept nogil:
    (<Pair*> self).inn.parts = 2
    return MQ_OK


cdef int dgram_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Sockaddr to
    if n != 2 or not sockaddr_parse(&to, msg_data(&parts[0]), msg_size(&parts[0])):
        return MQ_INVALID
    return pair_send(self, parts, n)


cdef int dgram_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef size_t at = out.n
    cdef int rc = pair_recv(self, out)
    if rc == MQ_OK:
        out.at[at].flags |= MSG_ROUTING_ID
    return rc


cdef PatternOps DGRAM = OPS
DGRAM.flags = PAT_SEND | PAT_RECV | PAT_WAITS | PAT_EXCLUSIVE | PAT_ADDRESSES
DGRAM.init = dgram_init
DGRAM.send = dgram_send
DGRAM.recv = dgram_recv

dgram = plugin_new(&DGRAM, "dgram", -1, "", -1, (), (),
                   "datagrams: each message is an address and a body")
