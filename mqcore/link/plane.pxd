"""The data plane of one context: pool, I/O threads, engine slots, and the mailbox to the control
plane."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.lock cimport Lock
from mqcore.base.slab cimport Pool
from mqcore.reactor.io_thread cimport IoThread
from mqcore.reactor.mailbox cimport Mailbox, Note
from mqcore.reactor.poller cimport PollerOps

cdef enum:                    # Note.kind
    NOTE_UP = 1               # handshake done; the engine's facts can be read
    NOTE_DOWN = 2             # engine ended: code, fatal, text; its slot waits for release
    NOTE_PATTERN = 3          # a pattern's event: code is PatternEvent, data in text
    NOTE_GONE = 5             # a pipe has ended and its messages are dealt with: final counters
    NOTE_ASKS = 6             # the codec is `asking`: the engine waits for engine_judge()
    NOTE_ROOM = 7             # departed peers left less unread again: listeners may go on accepting

cdef enum:
    NOTE_TEXT = 236           # bytes of text in a note at most

cdef struct ControlNote:
    Note head
    bint fixed                # its memory belongs to an engine; the reader frees any other
    uint32_t sock             # the socket's number in the context
    uint32_t engine           # slot, or 0xffffffff
    uint32_t peer             # Pipe.id, or 0
    int32_t code
    uint32_t fatal            # reconnecting would not help
    # NOTE_DOWN: bytes that had arrived and were never read; whether it brought a message
    int64_t unread
    bint carried
    uint32_t size             # bytes of text
    const char* text

cdef struct Plane:
    Pool* pool
    const PollerOps* poller
    IoThread** ios
    int n_ios
    uint64_t chance           # of such a plane: its sockets' random numbers follow from it
    bint stepped              # its I/O threads are run by plane_step(), by a clock of its own
    # runs the engines whose filters are Python, and nothing else; made with the first of them
    IoThread* filters
    Lock filters_lock
    atomic[uint32_t] next_io
    Mailbox notes
    bint histograms           # sockets measure latencies; set before the first one is made
    atomic[uint32_t] watched  # a program reads events() of some socket
    atomic[uint32_t] n_batching
    Lock batching_lock
    void* batching            # Sock: those that batch (sock/batching.pyx)
    # leak counters
    atomic[int64_t] links
    atomic[int64_t] engines
    atomic[int64_t] socks
    Lock slots_lock
    atomic[int64_t] pattern_notes     # NOTE_PATTERN, not yet taken by the control thread
    void* free_engines        # type-stable slots: the longest free first, freed with the plane
    void* last_free
    uint32_t n_free
    void** blocks
    uint32_t n_blocks
    uint32_t n_slots

# NULL: errno. lead_tick: ns between looks whether callers still read for themselves. virtual: 0, or
# the time at which the clock of a plane without threads begins, in ns
cdef Plane* plane_new(const PollerOps* poller, int io_threads, int64_t lead_tick,
                      int64_t virtual) noexcept nogil
# Without threads: one turn of each I/O thread's loop. How much there was to do
cdef int plane_step(Plane* plane) noexcept nogil
cdef void plane_stop(Plane* plane) noexcept nogil          # joins the I/O threads
# stopped, and no socket posts any more: close the descriptors. Idempotent.
cdef void plane_shut(Plane* plane) noexcept nogil
cdef void plane_free(Plane* plane) noexcept nogil          # after plane_stop; frees every slot
# forked child: close descriptors, leak the rest
cdef void plane_abandon(Plane* plane) noexcept nogil
# The thread of engines whose filters are Python. `io` where no thread can be started.
cdef IoThread* plane_filters(Plane* plane, IoThread* io) noexcept nogil
# What the control plane must learn has its memory before it happens: in the engine (fixed), or from
# note_new (NULL: out of memory). `text` is valid until the note has been read.
cdef ControlNote* note_new() noexcept nogil
cdef void plane_tell(Plane* plane, ControlNote* note, uint32_t kind, uint32_t sock, uint32_t engine,
                     uint32_t peer, int32_t code) noexcept nogil
# A pattern's event, of which a copy is made. Without memory it is lost, and nothing depends on it.
cdef void plane_note(Plane* plane, uint32_t kind, uint32_t sock, uint32_t engine, uint32_t peer,
                     int32_t code, uint32_t fatal, const void* text, size_t size) noexcept nogil
