"""Links: the two lanes and two ends that a pipe is made of, and the events that travel along it."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.histogram cimport Histogram
from mqcore.base.message cimport MsgVec
from mqcore.base.slab cimport Pool
from mqcore.link.plane cimport ControlNote
from mqcore.spi.lane cimport Lane
from mqcore.spi.pipe cimport Pipe

cdef enum:                    # Pipe.events: what the far side tells the socket
    EVENT_READ = 1            # messages were published while the socket's end slept
    EVENT_WRITE = 2           # space where the socket was blocked
    EVENT_ATTACH = 4          # handshake done: a new peer
    EVENT_TERM = 8            # the far side has let go; what it published may still be read
    EVENT_LISTED = 16
    EVENT_SHUT = 32           # nothing more can be sent; what the far side still publishes is read

cdef enum:                    # Pipe.state, the socket's own
    PIPE_NEW = 0
    PIPE_ATTACHED = 1
    PIPE_HUNG = 2             # far side gone, inbound messages left
    PIPE_ENDED = 3
    PIPE_REFUSED = 4          # by the pattern; the far side is about to let go
    PIPE_HELD = 5             # handshaken; the application has not admitted it yet. With
                              # DIRTY_HUNG: the far side has gone
    PIPE_SHUT = 6             # as attached, but nothing more can be sent: hangup has been called

cdef struct Marks:
    int64_t msgs              # INT64_MAX: no limit
    int64_t bytes
    bint conflate

cdef struct Traffic:          # what the far side counts; kept here since the engine goes first
    atomic[int64_t] written   # messages the kernel has whole
    atomic[int64_t] read      # complete messages received
    atomic[int64_t] half_out  # broken off in the middle of being written
    atomic[int64_t] unsendable # refused by the message engine for good
    atomic[int64_t] abandoned # held by the message engine when it ended
    atomic[int64_t] missed_in # lost in front of the message engine, because its buffer was full
    atomic[int64_t] bounced   # written, and then known not to have arrived
    atomic[int64_t] lost      # of the message engine's sources, on the way to us
    atomic[int64_t] conflated_in
    atomic[int64_t] malformed_in
    atomic[int64_t] unwanted_in  # of a peer that does not filter
    atomic[int64_t] late_in   # late answers that the codec could not match to a request
    atomic[int64_t] untranslated  # taken from the lane, and the peer's wire cannot say them
    atomic[int64_t] bytes_out
    atomic[int64_t] bytes_in
    atomic[int64_t] unread    # bytes that had arrived when the connection ended, never read
    atomic[int64_t] unacked   # bytes of messages that the peer's kernel had not confirmed then
    atomic[int64_t] writes    # system calls
    atomic[int64_t] reads
    atomic[int64_t] rtt       # ns from PING to PONG, the last one; 0 unknown

cdef struct Link:
    atomic[int32_t] refs      # each end holds one, each event under way one; the last one frees
    atomic[int64_t]* live     # leak counter of the plane
    Pool* pool
    Lane[2] lanes             # lanes[i]: written by end i
    Pipe[2] ends
    Traffic traffic
    int64_t since             # monotonic ns
    uint32_t engine           # slot, 0xffffffff for inproc
    uint32_t shut             # EVENT_SHUT came while the pipe was held; under the socket's lock
    uint32_t refused          # inproc: an end's pattern has refused the other; set before its end
    # inproc: holds[i] counts what may still touch the socket of end i: the other end while it is
    # attached, and its kicks under way. At zero `let_go` tells that socket, which waits for it when
    # it closes; the link itself may live on with messages that the other end has not read.
    atomic[int32_t] holds[2]
    void* owners[2]
    void (*let_go)(void* owner) noexcept nogil
    uint8_t* ids[2]           # copies of the peers' routing ids
    # inproc: what the control plane learns of each end's end, made ahead; NULL: none, or told
    ControlNote* gone[2]
    # what a dying engine had encoded but not sent, for the socket to re-queue
    MsgVec returned

cdef Link* link_new(Pool* pool, atomic[int64_t]* live, const Marks* forth,
                    const Marks* back) noexcept nogil
cdef void link_unref(Link* link) noexcept nogil
# Before anything is written to lane i: measure how long its messages wait. Not for a conflating
# lane, nor where memory is short.
cdef void link_measure(Link* link, int i, Histogram* to) noexcept nogil
# Make the notes of both ends' ends ahead. Status.
cdef int link_announced(Link* link) noexcept nogil
# The note of this end's end, the caller's from now on. NULL: an engine tells of it.
cdef ControlNote* link_gone(Link* link, Pipe* end) noexcept nogil
# Copy the peer's routing id for an end: what it came in may go before the link does. Status.
cdef int link_name(Link* link, int end, const uint8_t* id, uint32_t size) noexcept nogil


cdef inline void link_hold(Link* link, Pipe* end) noexcept nogil:
    """`end` is about to touch the socket at the other end, without its own socket's lock."""
    link.holds[1 if end == &link.ends[0] else 0].fetch_add(1)


cdef inline void link_let_go(Link* link, Pipe* end) noexcept nogil:
    """It has, or it never will again."""
    cdef int other = 1 if end == &link.ends[0] else 0
    cdef void* owner = link.owners[other]
    if link.let_go != NULL and link.holds[other].fetch_sub(1) == 1:
        link.let_go(owner)
