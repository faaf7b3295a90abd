"""The I/O thread: one native thread that runs posted tasks, harvests sockets' sets and fires
timers.

Others talk to it by `io_post` (lock-free stack; an eventfd is written only if the thread sleeps).
Timers and ticks belong to the thread itself and are armed only on it.

Nothing that keeps coming may keep the thread. In one turn of its loop it runs posted tasks for
25 us, tasks that were put off for another 25, and up to 64 timers. Then each socket that has edges
gets its share of 25 us, 10 at least; sockets that used up their share in the last turn come after
the others. A task or an edge is one step: an engine reads for 20 us at most, for longer where the
thread has only a few connections (`io_turn`). What is left waits for
the next turn, oldest first.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.clock cimport now_ns
from mqcore.reactor.includes cimport pthread_t
from mqcore.reactor.poller cimport PollerOps, Ready

cdef struct IoThread
cdef struct Task
cdef struct Watch

ctypedef void (*TaskRun)(Task* task, IoThread* io) noexcept nogil
ctypedef void (*Harvest)(Watch* watch) noexcept nogil

cdef struct Task:             # embedded in what is to be run; memory outlives the thread's interest
    Task* next
    atomic[uint32_t] queued
    TaskRun run               # on the I/O thread; may not block
    void* arg

cdef struct TaskList:         # of the I/O thread's own: what is to be run, the oldest first
    Task* head
    Task* tail

cdef enum:                    # Tick.which
    TICK_FLUSH = 0            # every 100 us
    TICK_BULK = 1             # every 500 us: a wake-up costs 5 us, which a busy sender would notice
    TICK_LED = 2              # every 10 ms, unless the context says otherwise
    TICK_LOOP = 3             # every 50 ms
    TICKS = 4

# Embedded; called every period of its kind while it returns True. It may change its kind.
cdef struct Tick:
    Tick* next
    uint32_t listed
    uint32_t which
    bint (*run)(Tick* tick, IoThread* io) noexcept nogil
    void* arg

cdef struct TickList:
    Tick* head
    int64_t period            # ns
    int64_t next              # when, if there are any

# a nested set: its descriptors' events are harvested by the waiting thread
cdef struct Watch:
    void* set
    IoThread* io
    # I/O thread: take edges and act on them, until there is none or io.share is used up. Each edge
    # that was taken has been acted on when this returns; `greedy` says whether some may be left.
    Harvest harvest
    void* arg
    uint32_t greedy           # the I/O thread's own: it used up its share the last time
    atomic[int32_t] load      # descriptors in it; counted by who adds and removes them

cdef struct Timer:
    int64_t when
    void* arg
    uint64_t tag              # the owner's own, to know a stale one
    void (*fire)(void* arg, uint64_t tag, IoThread* io) noexcept nogil

cdef struct IoThread:
    const PollerOps* poller
    void* set
    int wake
    int started
    pthread_t thread
    atomic[uint32_t] asleep
    atomic[uint32_t] stopping
    atomic[uint32_t] ended    # it has left its loop
    const char* name          # of the thread, for the system's tools
    bint calls_python         # it has a thread state of the interpreter while it runs
    atomic[Task*] posted
    atomic[Task*] put_off     # by io_post_later
    TaskList tasks
    TaskList later
    int64_t share             # ns that a socket's harvest may take in this turn
    atomic[int32_t] load      # connections that this thread runs
    Timer* timers             # binary heap
    size_t n_timers
    size_t cap_timers
    TickList[4] ticks         # by Tick.which
    atomic[uint64_t] loops    # times it woke, for tests
    # 0: the kernel's clock. Else it has no thread: io_step() runs it, and this is the time in ns.
    int64_t virtual

cdef enum:
    TURN_LEAST_NS = 20000
    TURN_MOST_NS = 1000000

cdef inline int64_t io_turn(IoThread* io) noexcept nogil:
    """ns for which one connection may be read at a time. A reader that takes messages while others
    are written shares every cache line with the writer, on two cores at half the rate. So a
    connection that is nearly alone publishes all that one read brought at once."""
    return max(<int64_t> TURN_MOST_NS // max(io.load.load(), 1), <int64_t> TURN_LEAST_NS)


cdef inline int64_t io_now(IoThread* io) noexcept nogil:
    """What its timers and the time limits of its engines go by."""
    return io.virtual if io.virtual else now_ns()


cdef IoThread* io_new(const PollerOps* poller) noexcept nogil           # NULL: errno
cdef int io_start(IoThread* io) noexcept nogil                          # 0, or an errno
cdef void io_stop(IoThread* io) noexcept nogil                          # joins; idempotent
# stopped: close the descriptors; nothing is posted any more
cdef void io_shut(IoThread* io) noexcept nogil
cdef void io_free(IoThread* io) noexcept nogil
# forked child: close descriptors only
cdef void io_abandon(IoThread* io) noexcept nogil
cdef void io_post(IoThread* io, Task* task) noexcept nogil              # any thread
# The same for what has had its turn: it waits behind whatever is posted meanwhile.
cdef void io_post_later(IoThread* io, Task* task) noexcept nogil        # any thread
cdef int io_watch(IoThread* io, Watch* watch) noexcept nogil            # any thread; 0 or -1
cdef void io_wake(IoThread* io) noexcept nogil                          # any thread
# Any thread but the I/O thread: returns when the I/O thread has handled everything that it had
# harvested before. No thread uses anything removed from its set then. Returns at once if the thread
# does not run.
cdef void io_sync(IoThread* io) noexcept nogil
# Without a thread (io.virtual): run one turn of the loop on the calling thread, without waiting.
# How much there was to do; 0: nothing can happen before the time, or a descriptor, changes.
cdef int io_step(IoThread* io) noexcept nogil
# The same: when the next timer or tick is due, in ns; INT64_MAX: none is
cdef int64_t io_due(IoThread* io) noexcept nogil
# on the I/O thread only
cdef int io_timer(IoThread* io, int64_t when, void (*fire)(void*, uint64_t,
                                                           IoThread*) noexcept nogil,
                  void* arg, uint64_t tag) noexcept nogil                             # Status
cdef void io_untimer(IoThread* io, void* arg) noexcept nogil    # every timer with this argument
cdef void io_tick(IoThread* io, Tick* tick) noexcept nogil      # idempotent
cdef void io_untick(IoThread* io, Tick* tick) noexcept nogil
