"""The door for strategies: which of its peers gets a message of a socket that spreads its load.

A strategy is one ops table, and the Python object that carries it to the registry. The same door
for one Python class: `mqcore/spi/python_strategy.py`. `protocols/routing/strategies.pyx` has the
built-in ones, found like any other through the entry-point group `mqcore.strategies`.

**Who calls, on which thread.** `choose` is called by one socket for each message that it sends
while it has more than one peer to choose from, with that socket's lock held, on whatever thread has
it. Never two at a time. It may be asked again for the same message, if the peer it chose turns out
to be full, and for a message that is then not sent.

**May it block.** Never: nogil, no system call, no lock. It only reads the pipes: a message is
written by who asked.

**What it need not think of.** Peers that have no room are not among the candidates; if none has
any, the send waits and nobody is asked. Peers that are silent (they owe an answer and were given
up for the time being) are candidates only if there are no others.
"""

from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport memory_order_acquire

from mqcore.spi.pipe cimport Host, Pipe

cdef enum:
    STRATEGY_ABI = 1          # of this file; and pipe.pxd's layouts count as in PATTERN_ABI

cdef enum StrategyFlag:       # the load balancer's own rings, which cost nothing; `choose` is NULL
    STRATEGY_PRIORITY = 1     # the lowest number that has room, in turn among equals
    STRATEGY_TURN = 2         # in turn, whatever the priority
    STRATEGY_ALL = 3

cdef enum:
    CHOSE_TOLD = 0xffffffff   # it failed, and has said so: the next in turn is taken

cdef struct Strategy:         # the head of every strategy's state, one a socket
    const StrategyOps* ops
    Host* host

cdef struct StrategyOps:      # static, read-only, outlives every socket
    uint32_t abi              # STRATEGY_ABI
    uint32_t flags            # StrategyFlag; 0: `choose` is asked
    size_t size               # bytes of state; allocated and zeroed by the socket, head filled in
    # When it is assigned to a socket. MQ_OK; anything else (MQ_NOMEM): the old one stays, and
    # `fini` is not called. May be NULL.
    int (*init)(Strategy* self) noexcept nogil
    # Frees what the others allocated, not self. May be NULL.
    void (*fini)(Strategy* self) noexcept nogil
    # Which of peers[0..n), n > 1, gets a message of `size` bytes: its index. Their order means
    # nothing and changes. Of a pipe count: prio (1 best .. 16), id, connected, routing_id, owed,
    # and pipe_load(). An index that does not exist is told as a PatternFailed event, once a run,
    # and the next in turn is taken.
    uint32_t (*choose)(Strategy* self, Pipe** peers, uint32_t n, int64_t size) noexcept nogil

cdef class StrategyPlugin:
    """What the entry-point group `mqcore.strategies` yields. Made by `strategy_new` in Cython."""
    cdef const StrategyOps* ops
    cdef object _keeps                # what ops lives in, if it is not static
    cdef readonly str name            # "least_loaded": what the option says
    cdef readonly str doc

cdef StrategyPlugin strategy_new(const StrategyOps* ops, str name, str doc)


cdef inline int64_t pipe_load(Pipe* p) noexcept nogil:
    """Messages queued for the peer, and requests that it has not answered. An engine tells what it
    took when it has taken all; within the process the peer's socket tells every so many messages,
    so that what it read last may be counted as queued."""
    if p.out.conflate:
        return p.owed
    # SYNC: acquire: a hint; nothing is read through it
    return p.out.w_msgs - p.out.p_msgs.load(memory_order_acquire) + p.owed
