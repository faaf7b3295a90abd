"""Choice: the live peers of a load balancer, and a strategy that picks one of them.

With a strategy, the array has three zones: pipes that may have space, unresponsive ones that may
have space, full ones. `Pipe.out_at` is the index, so each move is O(1). Without a strategy the
array is only a list, and `out_at` belongs to the load balancer's rings."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg
from mqcore.spi.pipe cimport Host, Pipe
from mqcore.spi.strategy cimport Strategy, StrategyOps

cdef struct Choice:           # zero-initialise
    Strategy* strategy        # NULL: none, the rings choose
    Pipe** at
    uint32_t n
    uint32_t cap
    uint32_t heard            # at[0..heard): may have space
    uint32_t open             # at[heard..open): likewise, but unresponsive. at[open..n): full
    uint32_t turn             # the next one if the strategy returns an invalid index
    bint failing              # a run of invalid results that was reported

cdef int choice_join(Choice* c, Pipe* p) noexcept nogil            # Status
cdef void choice_leave(Choice* c, Pipe* p) noexcept nogil          # if it is a member
# A strategy with its own state takes over from the rings. Status of its `init`.
cdef int choice_begin(Choice* c, Host* host, const StrategyOps* ops) noexcept nogil
cdef void choice_end(Choice* c) noexcept nogil                     # no strategy any more
cdef void choice_fini(Choice* c) noexcept nogil
# While there is a strategy:
cdef void choice_writable(Choice* c, Pipe* p, bint silent) noexcept nogil
cdef void choice_silence(Choice* c, Pipe* p, bint silent) noexcept nogil
# Both return as lb_send and lb_can_send do.
cdef int choice_send(Choice* c, Msg* parts, size_t n, Pipe** taker) noexcept nogil
cdef bint choice_can_send(Choice* c) noexcept nogil
