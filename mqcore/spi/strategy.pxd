"""The plug-in interface of strategies, which choose the peer for a message of a socket that
balances its load.

A strategy is an ops table, and the Python object that registers it. For a strategy as a Python
class see `mqcore/spi/python/strategy.py`. `protocols/routing/strategies.pyx` has the built-in ones,
which are found like any other through the entry-point group `mqcore.strategies`.

**Callers and threads.** A socket calls `choose` for each message that it sends while it has more
than one candidate, under the socket's lock, on any thread that holds it. Calls never overlap. The
socket may ask again for the same message if the chosen peer turns out to be full, and may ask for a
message that it then does not send.

**It must not block**: nogil, no system call, no lock. It only reads the pipes; the caller writes
the message.

**Candidates.** Peers without space are not among the candidates. If no peer has space, the send
waits without asking. Unresponsive peers (which owe a reply and were passed over for now) are
candidates only if there are no others.
"""

from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport memory_order_acquire

from mqcore.spi.pipe cimport Host, Pipe

cdef enum:
    STRATEGY_ABI = 2          # of this file; includes the layouts of pipe.pxd, as PATTERN_ABI does

cdef enum StrategyFlag:       # the load balancer's own rings, which cost nothing; `choose` is NULL
    STRATEGY_PRIORITY = 1     # the lowest number that has space, in turn among equals
    STRATEGY_TURN = 2         # in turn, whatever the priority
    STRATEGY_ALL = 3

cdef enum:
    CHOSE_TOLD = 0xffffffff   # it failed and has reported it: the next in turn is taken

cdef struct Strategy:         # the head of every strategy's state, one per socket
    const StrategyOps* ops
    Host* host

cdef struct StrategyOps:      # static, read-only, outlives every socket
    uint32_t abi              # STRATEGY_ABI
    uint32_t flags            # StrategyFlag; 0: `choose` is called
    # bytes of state; the socket allocates and zeroes it and fills in the head
    size_t size
    # When it is assigned to a socket. MQ_OK; anything else (MQ_NOMEM): the socket keeps the old
    # strategy, and `fini` is not called. May be NULL.
    int (*init)(Strategy* self) noexcept nogil
    # Frees what the others allocated, not self. May be NULL.
    void (*fini)(Strategy* self) noexcept nogil
    # Returns the index of the peer in peers[0..n), n > 1, that gets a message of `size` bytes.
    # Their order is arbitrary and changes. Of a pipe use: prio (1 best .. 16), id, connected,
    # routing_id, owed, and pipe_load(). An index out of range is reported as a PatternFailed event,
    # once per run, and the next in turn is taken.
    uint32_t (*choose)(Strategy* self, Pipe** peers, uint32_t n, int64_t size) noexcept nogil

cdef class StrategyPlugin:
    """The object that entry points of the group `mqcore.strategies` name. `strategy_new` creates it
    in Cython."""
    cdef const StrategyOps* ops
    cdef object _keeps                # keeps ops alive, if it is not static
    cdef readonly str name            # "least_loaded": the value of the option
    cdef readonly str doc

cdef StrategyPlugin strategy_new(const StrategyOps* ops, str name, str doc)


cdef inline int64_t pipe_load(Pipe* p) noexcept nogil:
    """Messages queued for the peer, and requests that it has not answered. An engine reports taken
    messages once it has taken all; an inproc peer's socket reports them every few messages, so the
    last messages it read may still count as queued."""
    if p.out.conflate:
        return p.owed
    # SYNC: acquire: a hint; no data is read through it
    return p.out.w_msgs - p.out.p_msgs.load(memory_order_acquire) + p.owed
