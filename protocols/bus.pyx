"""BUS: sends each message to every directly connected peer; receives from all, in turn. Peers: BUS.

Never blocks: a message to a peer at its HWM is dropped and counted, unless on_full says
otherwise. A message without any peer is `unmatched`. Messages are not forwarded beyond one link.

With `raw` a received message starts with a hop part that identifies its sender (flagged
MSG_ROUTING_ID), and a message sent with such a part goes to all other peers. So a device can join
two buses, or repeat one, without returning messages to their sender. The part is never transmitted.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport strcmp

from mqcore.base.message cimport (
    MSG_ROUTING_ID, Msg, MsgVec, msg_init, vec_push,
)
from mqcore.base.status cimport MQ_OK
from mqcore.protocols.routing.distribute cimport targets_fini, targets_join, targets_leave
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable, fq_recv, fq_waiting, vec_cut,
)
from mqcore.protocols.routing.fanout cimport Fanout, fanout_send, fanout_set_option
from mqcore.protocols.routing.stub cimport close_all, no_event
from mqcore.protocols.routing.words cimport HOP_MASK, hop_init, hop_read
from mqcore.spi.pattern cimport (
    PAT_FANOUT, PAT_RECV, PAT_SEND, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps,
    plugin_new,
)
from mqcore.spi.pipe cimport Pipe, host_chance, pipe_delivered

cdef struct Bus:
    Pattern head
    FairQueue inn
    Fanout out
    uint32_t base             # added to Pipe.id in a hop: hops of another bus match no peer here
    bint raw


cdef int bus_init(Pattern* self) noexcept nogil:
    (<Bus*> self).base = <uint32_t> (host_chance(self.host) >> 32)
    return MQ_OK


cdef void bus_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Bus*> self).inn)
    targets_fini(&(<Bus*> self).out.peers)


cdef int bus_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                        size_t size) noexcept nogil:
    if strcmp(name, "raw") == 0:
        (<Bus*> self).raw = number != 0
        return MQ_OK
    return fanout_set_option(&(<Bus*> self).out, name, number)


# -- peers -----------------------------------------------------------------------------------------

cdef int bus_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Bus* bus = <Bus*> self
    cdef int rc = fq_attach(&bus.inn, pipe)
    if rc:
        return rc
    rc = targets_join(&bus.out.peers, pipe)
    if rc:
        fq_detach(&bus.inn, pipe)
    return rc


cdef void bus_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    targets_leave(&(<Bus*> self).out.peers, pipe)


cdef void bus_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    bus_hangup(self, pipe)
    fq_detach(&(<Bus*> self).inn, pipe)


cdef void bus_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Bus*> self).inn, pipe)


# -- messages --------------------------------------------------------------------------------------

cdef Pipe* bus_source(Bus* bus, uint32_t hop) noexcept nogil:
    """The peer that a hop identifies; NULL: it is not connected."""
    cdef uint32_t i
    for i in range(bus.out.peers.n):
        if (bus.out.peers.at[i].id + bus.base) & HOP_MASK == hop:
            return bus.out.peers.at[i]
    return NULL


cdef int bus_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Bus* bus = <Bus*> self
    cdef Pipe* source = NULL
    cdef size_t front = 0
    cdef uint32_t hop
    cdef int rc
    if bus.raw and n > 1 and hop_read(&parts[0], &hop):
        front = 1
        source = bus_source(bus, hop)
    if source != NULL:
        targets_leave(&bus.out.peers, source)
    rc = fanout_send(&bus.out, bus.head.host, parts + front, n - front)
    if source != NULL:
        targets_join(&bus.out.peers, source)   # there is space: it has just left
    if rc == MQ_OK:
        close_all(parts, n)
    return rc


cdef int bus_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Bus* bus = <Bus*> self
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef Msg hop
    cdef int rc
    if not bus.raw:
        return fq_recv(&bus.inn, out)
    msg_init(&hop)
    rc = vec_push(out, &hop)  # reserve its place; the sender is known once the message is read
    if rc:
        return rc
    rc = fq_read(&bus.inn, out, &p)
    if rc:
        vec_cut(out, at)
        return rc
    hop_init(&out.at[at], p.id + bus.base)
    out.at[at].flags |= MSG_ROUTING_ID
    out.at[at].peer = p.id
    pipe_delivered(p)
    return MQ_OK


cdef int64_t bus_query(Pattern* self, uint32_t what, const uint8_t* data,
                       size_t size) noexcept nogil:
    if what == Q_CAN_SEND:
        return 1
    return fq_waiting(&(<Bus*> self).inn) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_FANOUT,
    size=sizeof(Bus),
    init=bus_init,
    fini=bus_fini,
    set_option=bus_set_option,
    attach=bus_attach,
    detach=bus_detach,
    hangup=bus_hangup,
    readable=bus_readable,
    writable=no_event,
    send=bus_send,
    recv=bus_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=bus_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "bus", -1, "", 0x70, ("bus",),
    (
        ("nodrop", "bool", False, "wait for peers whose queues are full instead of dropping"),
        ("raw", "bool", False, "messages identify their sender and are not returned to it"),
    ),
    "sends to every direct peer, receives from all of them in turn",
)
