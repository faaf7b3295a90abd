"""The strategies that come with the library. Found by name through `mqcore.strategies`.

`priority` and `round_robin` are rings of the load balancer and have no code here."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from mqcore.base.status cimport MQ_OK
from mqcore.spi.pipe cimport Pipe, host_chance
from mqcore.spi.strategy cimport (
    STRATEGY_ABI, STRATEGY_PRIORITY, STRATEGY_TURN, Strategy, StrategyOps, pipe_load, strategy_new,
)

cdef struct Least:
    Strategy head
    uint32_t turn             # where the next search begins: equals take turns

cdef struct Choices:
    Strategy head
    uint64_t state            # of the generator, never 0


cdef uint32_t least_choose(Strategy* self, Pipe** peers, uint32_t n, int64_t size) noexcept nogil:
    cdef Least* least = <Least*> self
    cdef uint32_t at = least.turn % n
    cdef uint32_t best = at
    cdef int64_t load, lowest = pipe_load(peers[at])
    cdef uint32_t i
    for i in range(1, n):
        at = 0 if at + 1 == n else at + 1
        load = pipe_load(peers[at])
        if load < lowest:
            lowest = load
            best = at
    least.turn = best + 1
    return best


cdef int two_init(Strategy* self) noexcept nogil:
    (<Choices*> self).state = host_chance(self.host) | 1
    return MQ_OK


cdef uint64_t two_random(Choices* two) noexcept nogil:
    """xorshift64*: what is wanted is spread, not secrecy."""
    cdef uint64_t x = two.state
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    two.state = x
    return x * <uint64_t> 0x2545f4914f6cdd1d


cdef uint32_t two_choose(Strategy* self, Pipe** peers, uint32_t n, int64_t size) noexcept nogil:
    cdef uint64_t x = two_random(<Choices*> self)
    cdef uint32_t a = <uint32_t> ((x >> 32) % n)
    cdef uint32_t b = <uint32_t> x % (n - 1)
    if b >= a:
        b += 1
    return b if pipe_load(peers[b]) < pipe_load(peers[a]) else a


cdef StrategyOps PRIORITY = StrategyOps(
    abi=STRATEGY_ABI, flags=STRATEGY_PRIORITY, size=sizeof(Strategy), init=NULL, fini=NULL,
    choose=NULL)
cdef StrategyOps TURN = StrategyOps(
    abi=STRATEGY_ABI, flags=STRATEGY_TURN, size=sizeof(Strategy), init=NULL, fini=NULL, choose=NULL)
cdef StrategyOps LEAST = StrategyOps(
    abi=STRATEGY_ABI, flags=0, size=sizeof(Least), init=NULL, fini=NULL, choose=least_choose)
cdef StrategyOps TWO = StrategyOps(
    abi=STRATEGY_ABI, flags=0, size=sizeof(Choices), init=two_init, fini=NULL, choose=two_choose)

priority = strategy_new(&PRIORITY, "priority",
                        "the lowest number with a live, writable peer gets all, equals in turn")
round_robin = strategy_new(&TURN, "round_robin", "all peers in turn, whatever their priority")
least_loaded = strategy_new(&LEAST, "least_loaded",
                            "who has the fewest messages queued and requests not answered")
two_choices = strategy_new(&TWO, "two_choices", "the less loaded of two that are drawn by lot")
