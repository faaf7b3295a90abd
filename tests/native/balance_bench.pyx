"""A load balancer on the pattern bench, and strategies with something wrong, for tests.

`pattern` is a push that tests tell who is silent (`subscribe`, the topic is the peer's number) and
who is heard (`unsubscribe`), and how much a peer owes (`owed`)."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, strcmp

from mqcore.base.message cimport Msg
from mqcore.base.status cimport MQ_INVALID, MQ_OK
from mqcore.protocols.routing.load_balance cimport (
    LoadBalance, lb_attach, lb_can_send, lb_detach, lb_fini, lb_hangup, lb_heard, lb_init, lb_send,
    lb_set_option, lb_silence, lb_writable,
)
from mqcore.protocols.routing.stub cimport no_event, no_recv
from mqcore.spi.pattern cimport (
    PAT_REROUTE, PAT_SEND, PAT_SERVICE, PAT_WAITS, PATTERN_ABI, Pattern, PatternOps, Q_CAN_SEND,
    plugin_new,
)
from mqcore.spi.pipe cimport Pipe
from mqcore.spi.strategy cimport (
    STRATEGY_ABI, Strategy, StrategyOps, StrategyPlugin, strategy_new,
)

cdef struct Balanced:
    Pattern head
    LoadBalance out


cdef int balanced_init(Pattern* self) noexcept nogil:
    lb_init(&(<Balanced*> self).out)
    return MQ_OK


cdef void balanced_fini(Pattern* self) noexcept nogil:
    lb_fini(&(<Balanced*> self).out)


cdef Pipe* balanced_find(Balanced* self, uint32_t number) noexcept nogil:
    cdef uint32_t i
    for i in range(self.out.by.n):
        if self.out.by.at[i].id == number:
            return self.out.by.at[i]
    return NULL


cdef int balanced_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                             size_t size) noexcept nogil:
    """"owed": the peer's number in the upper half, how much in the lower."""
    cdef Pipe* pipe
    if strcmp(name, "owed") != 0:
        return lb_set_option(&(<Balanced*> self).out, self.host, name, number)
    pipe = balanced_find(<Balanced*> self, <uint32_t> (number >> 32))
    if pipe == NULL:
        return MQ_INVALID
    pipe.owed = <uint32_t> number
    return MQ_OK


cdef int balanced_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    return lb_attach(&(<Balanced*> self).out, pipe)


cdef void balanced_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_detach(&(<Balanced*> self).out, pipe)


cdef void balanced_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_hangup(&(<Balanced*> self).out, pipe)
    lb_silence(&(<Balanced*> self).out, pipe)      # may come late, and changes nothing
    lb_heard(&(<Balanced*> self).out, pipe)


cdef void balanced_writable(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_writable(&(<Balanced*> self).out, pipe)


cdef int balanced_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Pipe* taker = NULL
    return lb_send(&(<Balanced*> self).out, parts, n, &taker)


cdef int balanced_subscribe(Pattern* self, const uint8_t* topic, size_t size,
                            int on) noexcept nogil:
    cdef uint32_t number = 0
    cdef Pipe* pipe
    if size == 4:
        memcpy(&number, topic, 4)
    pipe = balanced_find(<Balanced*> self, number)
    if pipe == NULL:
        return MQ_INVALID
    if on:
        lb_silence(&(<Balanced*> self).out, pipe)
    else:
        lb_heard(&(<Balanced*> self).out, pipe)
    return MQ_OK


cdef int64_t balanced_query(Pattern* self, uint32_t what, const uint8_t* data,
                            size_t size) noexcept nogil:
    return lb_can_send(&(<Balanced*> self).out) if what == Q_CAN_SEND else 0


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_WAITS | PAT_REROUTE | PAT_SERVICE,
    size=sizeof(Balanced),
    init=balanced_init,
    fini=balanced_fini,
    set_option=balanced_set_option,
    attach=balanced_attach,
    detach=balanced_detach,
    hangup=balanced_hangup,
    readable=no_event,
    writable=balanced_writable,
    send=balanced_send,
    recv=no_recv,
    send_to=NULL,
    subscribe=balanced_subscribe,
    abandon=NULL,
    query=balanced_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "balanced", -1, "", -1, (), (), "a push that tests can steer")


# -- strategies ------------------------------------------------------------------------------------

cdef uint32_t nobody_choose(Strategy* self, Pipe** peers, uint32_t n, int64_t size) noexcept nogil:
    return n


cdef StrategyOps NOBODY = StrategyOps(
    abi=STRATEGY_ABI, flags=0, size=sizeof(Strategy), init=NULL, fini=NULL, choose=nobody_choose)

nobody = strategy_new(&NOBODY, "nobody", "always chooses a peer that is not there")


cdef class _Altered:
    cdef StrategyOps ops


def altered(StrategyPlugin plugin, *, abi=None, flags=None, size=None, str name="altered",
            bint choose=True):
    """The plug-in with something wrong in its table, as the registry may meet one."""
    cdef _Altered table = _Altered()
    table.ops = plugin.ops[0]
    if abi is not None:
        table.ops.abi = abi
    if flags is not None:
        table.ops.flags = flags
    if size is not None:
        table.ops.size = size
    if not choose:
        table.ops.choose = NULL
    made = strategy_new(&table.ops, name, plugin.doc)
    made._keeps = table
    return made
