"""The socket of the data plane: one lock, one pattern, its pipes, and the waiting threads.

Code under the lock is C: no Python, no reference counting of objects, no system call (except for
patterns in Python: spi/python/operation.pxd). A thread that waits for the lock releases the GIL.
Engines and other sockets never take the lock to report something. They put the pipe on the ready
stack (lock-free) and wake sleeping threads. The next thread that takes the lock drains the stack.
What cannot wait (attach, end, subscriptions) is drained by the reporting thread itself if the lock
is free.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.lock cimport Lock
from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.spin cimport Spin
from mqcore.link.engine cimport Port
from mqcore.link.pipe cimport Traffic
from mqcore.link.plane cimport ControlNote, Plane
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

cdef struct Sock
cdef struct Ring

cdef enum:                    # values of Notifier.fd other than descriptors
    NOTIFIER_FREE = -1
    NOTIFIER_RING = -2

cdef enum:                    # Bell.asleep: how a ring wakes the poller
    BELL_AWAKE = 0
    BELL_FUTEX = 1
    BELL_FD = 2
    BELL_LEADS = 3

cdef struct Bell:             # of a poller of many sockets (poll_set.pyx, notify.pyx)
    atomic[Ring*] rung        # places that rang since the poller took the list, a stack
    atomic[uint32_t] asleep   # BELL_*
    atomic[uint32_t] waking   # threads about to wake it
    int fd                    # eventfd for BELL_FD; -1: none yet
    Sock* led                 # for BELL_LEADS

cdef struct Ring:             # such a poller's place at one socket; the poller's memory
    Ring* next
    Bell* bell
    void* entry
    Sock* s                   # NULL: that socket's memory has gone

cdef struct Notifier:         # a loop or poller, told once per arming: by its eventfd, or its ring
    int fd
    atomic[uint32_t] busy     # threads about to tell it
    Ring* ring

cdef struct Ended:            # final accounts of a peer that has left
    Ended* next
    uint32_t id
    int64_t offered, written, delivered, read, bytes_out, bytes_in, since
    int64_t bytes_unread, bytes_unacked, writes, reads, rtt, bounced, lost
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
    bint dropping             # of on_full="drop_new": a run of drops that was reported
    uint32_t immediate
    uint32_t strict           # a request that waits for its first peer is not superseded either
    atomic[uint32_t] closing  # CLOSING_*
    atomic[uint32_t] connects # endpoints of our own that may bring a peer
    # -- lock and wake-ups ---------------------------------------------------------------------
    atomic[uint32_t] lock     # 0 free, 1 taken, 2 taken and a thread is parked
    atomic[uint32_t] change   # grows whenever a waiter should look again
    atomic[uint32_t] service  # a thread must drain, even without a call
    atomic[uint32_t] overtaken  # an urgent event joined a pipe that is being put on the stack
    atomic[uint32_t] serve_posted  # serve_task is on its way to an I/O thread
    Task serve_task
    atomic[uint32_t] lead     # 0 none, 1 a thread, LEAD_LOOP + place: the loop that waits there
    atomic[uint32_t] lead_asleep
    atomic[uint32_t] followers
    atomic[uint32_t] takers   # of them: any message is for any of these: one at a time wakes
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
    atomic[uint32_t] epoch    # number of times that a leader entered
    atomic[int32_t] wants     # engines that must not wait for a tick
    uint32_t ticking          # under the watch's lock
    uint32_t ticked_epoch     # the tick's own
    int64_t entered           # private to the leader: time of entry, ns
    Spin spin                 # and, before it sleeps: how long it polls
    Tick led_tick
    Task led_task
    atomic[uint32_t] looped   # a loop leads, and may be busy
    atomic[uint32_t] looking  # written under the watch's lock: the tick below is in use
    uint32_t looked_epoch     # that tick's own
    Tick loop_tick
    Task loop_task
    Notifier[16] notifiers
    atomic[uint32_t] armed    # a bit for each of them that is to be told of the next change
    atomic[uint32_t] rings    # a bit for each that is a ring
    atomic[uint32_t] notified # how many others are in use
    # -- under the lock --------------------------------------------------------------------------
    Pipe* all                 # attached pipes
    Pipe* hung                # far side gone, inbound messages left
    Pipe* held                # PIPE_HELD: the pattern does not know them
    int64_t left_dropped      # messages of departed peers that a dropping pattern did not keep
    # NOTE_ROOM for listeners that have stopped accepting; NULL: none has, or it has been told
    atomic[ControlNote*] room
    bint holds                # new ones are held until admit()
    atomic[uint32_t] n_pipes  # written under the lock, read without
    MsgVec waiting            # unrouted messages, from `waiting_at` on
    size_t waiting_at
    atomic[int64_t] n_waiting
    int64_t waiting_bytes
    int64_t sent              # messages taken from the application
    int64_t received          # messages given to it
    uint32_t unled            # messages taken since the last leader, while no thread watches
    uint32_t unled_epoch
    Ended* ended
    uint32_t n_ended
    Ended total               # sums over all that ended
    # -- batching (batching.pyx) -------------------------------------------------------------------
    uint32_t batching
    atomic[uint32_t] burst    # inline writes in a row that followed each other closely; a hint
    atomic[int64_t] last_write  # ns, end of the last inline write; a hint
    atomic[uint64_t] last_sender  # the thread that wrote it; a hint
    atomic[uint32_t] last_waits  # how often that thread had waited by then; a hint
    int64_t owed              # bytes not yet published
    bint paused               # batching, and nothing was sent in the last tick
    bint ran                  # batching, and the last tick saw a run of sends
    bint busy                 # batching, and some tick did
    atomic[int64_t] batched   # ns, when batching last ended (a hint); 0 if no tick saw a run
    atomic[uint32_t] due      # the next thread that leaves must write what is owed
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
    atomic[uint32_t] rung     # it is due: the holder of the lock calls the pattern
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
# Something must be acted on even if the application never calls.
cdef void sock_serve(Sock* s) noexcept nogil
# The same, by an I/O thread.
cdef void sock_post_serve(Sock* s) noexcept nogil
# Status; takes parts on MQ_OK
cdef int sock_send(Sock* s, Msg* parts, size_t n) noexcept nogil
# Messages of v from part `start` on, one locking; *done: the part after the last one taken. MQ_OK:
# all taken. MQ_AGAIN, MQ_FULL: the rest not now. Otherwise, the message at *done is refused.
cdef int sock_send_many(Sock* s, MsgVec* v, size_t start, size_t* done,
                        size_t* count) noexcept nogil
cdef int sock_send_to(Sock* s, uint32_t peer, Msg* parts, size_t n) noexcept nogil
# Status; appends one message
cdef int sock_recv(Sock* s, MsgVec* out) noexcept nogil
# the same for a context
cdef int sock_recv_as(Sock* s, uint32_t context, MsgVec* out) noexcept nogil
cdef int sock_recv_many(Sock* s, MsgVec* out, size_t max, int64_t max_bytes,
                        size_t* count) noexcept nogil
