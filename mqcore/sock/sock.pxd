"""The socket of the data plane: one lock, one pattern, its pipes, and whoever waits.

Everything inside the lock is C: no Python, no reference counting of objects, no system call (but
for patterns that are Python classes: spi/python_ops.pxd). Who waits for it lets go of the GIL.
Engines and other sockets never take the lock to tell us something: they put the pipe on the ready
stack (lock-free) and wake whoever sleeps; the stack is drained under the lock by the next one who
takes it, and, for what cannot wait (attach, end, subscriptions), by the teller itself if the lock
is free.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.lock cimport Lock
from mqcore.base.message cimport Msg, MsgVec
from mqcore.link.engine cimport Port
from mqcore.link.pipe cimport Traffic
from mqcore.link.plane cimport Plane
from mqcore.reactor.io_thread cimport IoThread, Task, Tick, Watch
from mqcore.reactor.poller cimport Ready
from mqcore.spi.pattern cimport Pattern, PatternOps
from mqcore.spi.pipe cimport Host, Pipe

cdef enum:
    NOTIFIERS = 16            # loops and pollers that may wait on one socket at a time

cdef enum:                    # Sock.on_full
    FULL_PATTERN = 0
    FULL_BLOCK = 1
    FULL_DROP_NEW = 2
    FULL_DISCONNECT = 3

cdef enum:                    # Sock.lead
    LEAD_LOOP = 2

cdef enum:                    # how sock_wait ended
    WAIT_CHANGED = 0
    WAIT_TIMEOUT = 1
    WAIT_LOOK = 2             # look for signals, then go on waiting

cdef enum:                    # Sock.closing
    CLOSING_NOT = 0
    CLOSING_INPUT = 1         # calls fail; what was sent goes on, to peers that come now as well
    CLOSING_ALL = 2           # linger is over

cdef struct Notifier:         # an eventfd of a loop or poller, written once per arming
    int fd
    atomic[uint32_t] armed
    atomic[uint32_t] busy     # threads about to write it

cdef struct Ended:            # final accounts of a peer that has left
    Ended* next
    uint32_t id
    int64_t offered, written, delivered, read, bytes_out, bytes_in, since
    int64_t writes, reads, rtt, bounced
    int64_t[14] out_dropped
    int64_t[14] in_dropped

cdef struct Sock:
    Port port                 # first: what engines know us by
    Host host                 # second: what the pattern knows us by
    Plane* plane
    Pattern* pattern
    const PatternOps* ops
    uint32_t flags            # of the pattern
    uint32_t on_full
    bint dropping             # of on_full="drop_new": a run of drops that was told of
    uint32_t immediate
    uint32_t strict           # a request that waits for its first peer is not superseded either
    atomic[uint32_t] closing  # CLOSING_*
    atomic[uint32_t] connects # endpoints of our own that may bring a peer
    # -- lock and wake-ups ---------------------------------------------------------------------
    atomic[uint32_t] lock     # 0 free, 1 taken, 2 taken and somebody parks
    atomic[uint32_t] change   # grows whenever a waiter should look again
    atomic[uint32_t] service  # somebody must drain, caller or not
    atomic[uint32_t] overtaken  # an urgent event joined a pipe that is being put on the stack
    atomic[uint32_t] serve_posted  # serve_task is on its way to an I/O thread
    Task serve_task
    atomic[uint32_t] lead     # 0 nobody, 1 a thread, LEAD_LOOP + place: the loop that waits there
    atomic[uint32_t] lead_asleep
    atomic[uint32_t] followers
    atomic[uint32_t] users    # calls inside
    atomic[Pipe*] ready
    atomic[int64_t] engines   # not yet ended
    # the socket's own sets, each nested in its I/O thread's; made with the first engine
    Watch* watches
    uint32_t n_watches
    IoThread* home            # of its ticks
    void* set                 # what a leader waits on
    int wake                  # eventfd in that set, edge-triggered, never read
    atomic[uint32_t] watching
    Lock watch_lock
    atomic[uint32_t] watch_state  # WATCH_*
    atomic[uint32_t] epoch    # times that somebody entered as leader
    atomic[int32_t] wants     # engines that must not wait for a tick
    uint32_t ticking          # under the watch's lock
    uint32_t ticked_epoch     # the tick's own
    int64_t entered           # the leader's own: ns, when he did
    int64_t spin              # and, before he sleeps: ns that he asks; waits without asking, left
    uint32_t spin_skip        # and in a row
    uint32_t spin_pause
    Tick led_tick
    Task led_task
    Notifier[16] notifiers
    atomic[uint32_t] notified # how many of them are in use
    # -- under the lock --------------------------------------------------------------------------
    Pipe* all                 # attached pipes
    Pipe* hung                # far side gone, inbound messages left
    Pipe* held                # PIPE_HELD: the pattern does not know them
    bint holds                # new ones are held until admit()
    atomic[uint32_t] n_pipes  # written under the lock, read without
    MsgVec waiting            # unrouted messages, from `waiting_at` on
    size_t waiting_at
    atomic[int64_t] n_waiting
    int64_t waiting_bytes
    int64_t sent              # messages taken from the application
    int64_t received          # messages given to it
    uint32_t unled            # of them since somebody led, while nobody watches
    uint32_t unled_epoch
    Ended* ended
    uint32_t n_ended
    Ended total               # sums over all that ended
    # -- batching (batching.pyx) -------------------------------------------------------------------
    uint32_t batching
    atomic[uint32_t] burst    # inline writes in a row that followed each other closely; a hint
    atomic[int64_t] last_write  # ns, end of the last inline write; a hint
    int64_t owed              # bytes published to nobody yet
    bint paused               # batching, and nothing was sent in the last tick
    atomic[uint32_t] due      # what is owed is to be written by whoever leaves next
    uint32_t sends            # since the last tick
    uint32_t calm             # ticks in a row that found little
    uint32_t unwritten        # ticks since what was owed was last written
    atomic[uint64_t] sender   # the thread that sent last; 0: it has settled
    Sock* batching_next       # under the plane's lock for them
    Tick tick
    Task start_tick
    # -- the pattern's alarm: a timer of the plane's first I/O thread ------------------------------
    int64_t alarm             # under the lock: what that thread has been told; 0: nothing
    bint alarmed              # under the lock: the pattern was called, waiters must look
    atomic[int64_t] alarm_when
    atomic[uint32_t] alarm_posted
    atomic[uint32_t] rung     # its time has come: whoever has the lock calls the pattern
    bint alarm_timer          # the I/O thread's own: there is one
    Task alarm_task
    uint32_t contexts         # under the lock: the number last given to one
    int64_t unemitted         # under the lock: events of the pattern that found too many waiting

cdef Sock* sock_new(Plane* plane, const PatternOps* ops, uint32_t number) noexcept nogil
cdef void sock_free(Sock* s) noexcept nogil               # no engine, no pipe, no call inside
# -- under no lock; any thread ---------------------------------------------------------------------
cdef void sock_enter(Sock* s) noexcept nogil              # lock and drain
cdef bint sock_try_enter(Sock* s) noexcept nogil
cdef void sock_leave(Sock* s, bint flush) noexcept nogil  # unlock, then wake and write what is owed
# Status; takes parts on MQ_OK
cdef int sock_send(Sock* s, Msg* parts, size_t n) noexcept nogil
# Messages of v from part `start` on, one locking; *done: the part after the last one taken. MQ_OK:
# all taken; MQ_AGAIN, MQ_FULL: the rest not now; else the message at *done is refused.
cdef int sock_send_many(Sock* s, MsgVec* v, size_t start, size_t* done,
                        size_t* count) noexcept nogil
cdef int sock_send_to(Sock* s, uint32_t peer, Msg* parts, size_t n) noexcept nogil
# Status; appends one message
cdef int sock_recv(Sock* s, MsgVec* out) noexcept nogil
# the same for a context
cdef int sock_recv_as(Sock* s, uint32_t context, MsgVec* out) noexcept nogil
cdef int sock_recv_many(Sock* s, MsgVec* out, size_t max, int64_t max_bytes,
                        size_t* count) noexcept nogil
# context: 0 is the socket's own
cdef int sock_subscribe(Sock* s, uint32_t context, const uint8_t* topic, size_t size,
                        int on) noexcept nogil
cdef void sock_abandon(Sock* s, uint32_t context) noexcept nogil
cdef int64_t sock_query(Sock* s, uint32_t what, const uint8_t* data, size_t size) noexcept nogil
cdef int64_t sock_query_as(Sock* s, uint32_t context, uint32_t what) noexcept nogil
# Status; MQ_UNSUPPORTED: the pattern has none. What a closed context had waiting is forgotten.
cdef int sock_open_context(Sock* s, uint32_t* context) noexcept nogil
cdef void sock_close_context(Sock* s, uint32_t context) noexcept nogil
# messages not yet with the kernel or a peer
cdef int64_t sock_outstanding(Sock* s) noexcept nogil
cdef void sock_changed(Sock* s) noexcept nogil            # make every waiter look again
# calls fail from now on; False: did already
cdef bint sock_close_input(Sock* s) noexcept nogil
# linger is over: count what is left, end all pipes
cdef void sock_drop_all(Sock* s) noexcept nogil
# kick every harvested engine
cdef void sock_act(Sock* s, Ready* found, int n) noexcept nogil
# Something must be acted on even if the application never calls.
cdef void sock_serve(Sock* s) noexcept nogil
# -- how engines and inproc peers reach the socket; lock-free, any thread
cdef void sock_event(Pipe* pipe, uint32_t what) noexcept nogil
# The same, but an I/O thread does what follows: no system call here but its wake-up, and nothing of
# this socket runs in the caller, who may hold the lock of another.
cdef void sock_event_later(Pipe* pipe, uint32_t what) noexcept nogil
cdef void sock_ended(Port* port) noexcept nogil
