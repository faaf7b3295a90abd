"""LANES: a PULL that serves its peers by priority. Peer: PUSH.

Sixteen lanes, one for each value of the option `prio` of a connection (1 is best). A message of a
better lane always comes first. Within a lane the peers take turns. So with

    s.connect("tcp://urgent:5555", prio=1)
    s.connect("tcp://bulk:5555", prio=9)

bulk is read only while urgent has nothing. The option `patience`, unless 0, breaks that regularly,
so that no peer starves: after that many messages in a row the next one comes from the last lane
that has any.

Each lane is a fair queue (`mqcore.protocols.routing.fair_queue`). A bit mask records which of them
may have messages.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport strcmp

from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_readable, fq_recv, fq_waiting,
)
from mqcore.protocols.routing.stub cimport no_event, no_send
from mqcore.spi.message cimport MQ_AGAIN, MQ_INVALID, MQ_OK, MQ_UNSUPPORTED, MsgVec
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_RECV, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe

cdef struct Lanes:
    Pattern head              # first
    FairQueue[17] lanes       # by priority; 0 is not used
    uint32_t some             # bit p: lanes[p] may have a message
    int64_t patience
    int64_t row               # messages in a row while a later lane may have had one


cdef inline FairQueue* lane_of(Lanes* self, Pipe* pipe) noexcept nogil:
    return &self.lanes[1 if pipe.prio < 1 else 16 if pipe.prio > 16 else pipe.prio]


cdef int lanes_init(Pattern* self) noexcept nogil:
    return MQ_OK              # all zero is a good start


cdef void lanes_fini(Pattern* self) noexcept nogil:
    cdef int prio
    for prio in range(17):
        fq_fini(&(<Lanes*> self).lanes[prio])


cdef int lanes_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                          size_t size) noexcept nogil:
    if strcmp(name, "patience") != 0:
        return MQ_UNSUPPORTED
    if number < 0:
        return MQ_INVALID
    (<Lanes*> self).patience = number
    (<Lanes*> self).row = 0
    return MQ_OK


cdef int lanes_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    return fq_attach(lane_of(<Lanes*> self, pipe), pipe)


cdef void lanes_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_detach(lane_of(<Lanes*> self, pipe), pipe)


cdef void lanes_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Lanes* me = <Lanes*> self
    cdef FairQueue* lane = lane_of(me, pipe)
    fq_readable(lane, pipe)
    me.some |= <uint32_t> 1 << (lane - me.lanes)


cdef int first_lane(Lanes* self) noexcept nogil:
    """The best lane that has a message; 0: none."""
    cdef int prio
    for prio in range(1, 17):
        if self.some >> prio & 1:
            if fq_waiting(&self.lanes[prio]):
                return prio
            self.some &= ~(<uint32_t> 1 << prio)
    return 0


cdef int last_lane(Lanes* self) noexcept nogil:
    """The last one that has; there is one."""
    cdef int prio
    for prio in range(16, 0, -1):
        if self.some >> prio & 1 and fq_waiting(&self.lanes[prio]):
            break
    return prio


cdef int lanes_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Lanes* me = <Lanes*> self
    cdef int prio = first_lane(me)
    cdef int rc
    if prio == 0:
        return MQ_AGAIN
    if me.patience and me.row >= me.patience:
        prio = last_lane(me)
        me.row = -1
    rc = fq_recv(&me.lanes[prio], out)
    if rc == MQ_OK:
        me.row += 1
    return rc


cdef int64_t lanes_query(Pattern* self, uint32_t what, const uint8_t* data,
                         size_t size) noexcept nogil:
    if what == Q_CAN_RECV:
        return first_lane(<Lanes*> self) != 0
    return 0 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_RECV | PAT_CONFLATE,
    size=sizeof(Lanes),
    init=lanes_init,
    fini=lanes_fini,
    set_option=lanes_set_option,
    attach=lanes_attach,
    detach=lanes_detach,
    hangup=no_event,
    readable=lanes_readable,
    writable=no_event,
    send=no_send,
    recv=lanes_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=lanes_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "lanes", 7, "PULL", -1, ("push",),
    (("patience", "int", 0, "messages in a row before the last lane gets one in between; 0: no"),),
    "messages of the best peers first, in turn among equals")
