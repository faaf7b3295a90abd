"""The writing end of a journal, without Python: the block in the making, its file, commits.

Any number of threads may append. `lock` guards every field but the atomics. `sync_lock` is held
through a commit's fdatasync, is taken before `lock` and never after it, and so one fsync serves all
threads that waited for the one before (group commit) while appending goes on. `flight` is held
through every fdatasync of the file, is taken after `lock`, and its holder takes no other lock: the
system reports a failed write to one fdatasync only, so the next one must see what the last one saw.

Appending one message, with `lock` held: log_room() gives the place for its bytes (and writes the
block first if it is full), then log_key() and log_header() for what it has of them, then
log_take(). What returns int returns 0, an errno, or a Refusal.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from libcpp.atomic cimport atomic
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from mqcore.base.includes cimport iovec
from mqcore.journal.store.block cimport (
    HAS_HEADERS, HAS_KEYS, HAS_STAMPS, KEY_ENDS, HEADER_ENDS, LIFE_STAMP, STAMP, TIMES, VALUE_ENDS,
    VALUES, BlockHeader, SegmentHeader,
)
from mqcore.journal.store.buffer cimport Buffer
from mqcore.journal.store.includes cimport pthread_mutex_t
from mqcore.journal.store.producers cimport Producers

cdef struct FileOps:          # the system's calls, or a test's disk; each as the call of its name
    ssize_t (*pwritev)(void* self, int fd, const iovec* iov, int n, int64_t at) noexcept nogil
    int (*fdatasync)(void* self, int fd) noexcept nogil
    void* self

cdef enum Refusal:            # what no call of the system returns
    DUPLICATE = -1            # this stamped message is stored already, at `twin`; nothing was taken
    CLOSED = -2               # log_close() has begun to settle
    FORKED = -3               # this is a forked child's copy of its parent's log
    FENCED = -5               # another journal has a newer epoch: see epoch.py
    QUIET = -4                # of `barred` only: nothing is pending, and the flusher sleeps

cdef extern from *:
    """
    static const int64_t mq_never = INT64_MAX;
    """
    const int64_t NEVER "mq_never"                  # ns: no time

# Compresses n pieces of `size` bytes in all: 0 or an errno. packing.pyx has the only one.
ctypedef int (*Pack)(void* codec, const iovec* pieces, int n, size_t size,
                     Buffer* into) noexcept nogil

cdef struct Piece:            # one column of a block to be written, wherever it lies
    const uint8_t* at
    size_t n

cdef struct Log:
    pthread_mutex_t lock
    pthread_mutex_t sync_lock
    pthread_mutex_t flight
    FileOps ops
    atomic[int64_t] written   # every message below is in the kernel, so readers see it
    atomic[int64_t] durable   # every message below is on the disk
    atomic[int64_t] due       # when the flusher is to look at it (CLOCK_MONOTONIC, ns); NEVER
    int barred                # why log_room() looks closer: `broken`, or a Refusal; 0: no reason
    int folder                # descriptors
    int fd
    int shown                 # the file `durable`; -1: none
    int broken                # the errno after which nothing can be promised any more; 0: none
    int failed                # of the last fdatasync: guarded by `flight`, not by `lock`
    int stalled               # the errno of the last write, which will be tried again; 0: none
    bint syncs                # fsync="interval": the flusher commits what is written
    bint each                 # fsync="always": a sink commits each batch it takes
    bint stamped              # take stamps off the messages and into columns
    bint unstamped            # the message in the making has none, whatever it begins with
    bint marked               # the file ends with a checkpoint
    SegmentHeader segment
    int64_t next              # offset of the next message
    int64_t pos               # where the next block goes in the file
    int64_t reach             # up to where anything was written; above pos: what a failure left
    int64_t last              # where the last block of this writer begins; -1: it has written none
    uint32_t last_crc         # of that block's header
    bint torn                 # a write has failed: the file's size is not known
    int64_t pause             # ns between the first message and the flusher's look
    int64_t low               # times of the segment so far
    int64_t high
    size_t block_bytes
    int64_t segment_bytes
    int64_t segment_age       # us; 0: any
    int64_t begun             # when the segment was (CLOCK_BOOTTIME, us): age.pxd
    int64_t rotations
    int64_t blocks            # written, and their bytes
    int64_t bytes
    int64_t syncs_done
    int64_t sync_ns           # what they took together, and the longest of them
    int64_t sync_longest
    Producers* producers      # NULL: what is sent again is stored again
    uint64_t origin           # the connection that the message in the making came over; 0: none
    int64_t duplicates        # left out for their sake
    int64_t fenced            # left out because a newer life of their producer has begun
    int64_t twin              # where the first of the last duplicate is; -1: not known any more.
                              # After one that was fenced: the newest life
    # blocks that readers do not see yet: withheld.pxd
    bint holding              # until they are shown or dropped
    bint partly               # showing them has failed halfway
    int64_t withheld_low      # low and high before the first of them
    int64_t withheld_high
    Buffer withheld           # their headers
    # compression: packed.pxd
    Pack pack
    void* codec               # pyarrow's, kept by the WriterCore
    uint32_t packs            # the codec's flag; 0: blocks are written as they are
    Buffer packed             # what becomes of a block's columns
    bint nulled               # it has stored a block of MODERN: its segments are of version 2
    # the block in the making
    uint32_t count
    uint32_t flags
    uint32_t nulls            # of the messages: tombstones. See nulls.pxd
    bint null                 # the message in the making is one
    uint32_t lived            # of the messages: those with a life. See stamping.pxd
    uint32_t life             # of the message in the making
    int64_t base              # with COMPACTED, the offset of the first message; and the places
    Buffer places             # of all from there on, uint32. See gap.pxd
    size_t filled             # bytes of its columns
    int64_t block_low
    int64_t block_high
    Buffer columns[16]
    Log* before               # in the list of all logs of the process: process.pxd
    Log* after

cdef Log* log_new() noexcept nogil                  # NULL: no memory. It is CLOSED
cdef void log_free(Log* log) noexcept nogil         # closes the descriptors, throws the block away
cdef void close_files(Log* log) noexcept nogil      # of one that is closed
cdef void log_show(Log* log, int64_t durable) noexcept nogil    # to readers: the file `durable`
cdef int log_segment(Log* log, int64_t first) noexcept nogil        # begins a new file
# -- with `lock` held ---------------------------------------------------------------------------
cdef int log_make_room(Log* log, size_t size) noexcept nogil
cdef int log_key(Log* log, const uint8_t* key, size_t size) noexcept nogil
cdef int log_header(Log* log, const uint8_t* name, size_t name_size, const uint8_t* datum,
                    size_t datum_size) noexcept nogil
cdef int log_headers_end(Log* log) noexcept nogil   # after the last log_header() of a message
cdef int log_optional(Log* log, size_t start) noexcept nogil
cdef int log_flush(Log* log) noexcept nogil         # the block in the making, to the kernel
cdef void log_trim(Log* log) noexcept nogil         # forgets what is behind the last log_take()
# n messages that lie together: ends are theirs, rebased to 0; times may be NULL: now
cdef int log_direct(Log* log, const uint8_t* values, const int32_t* ends, const int64_t* times,
                    uint32_t n, int64_t now) noexcept nogil
cdef int log_rotate(Log* log) noexcept nogil
cdef void log_empty(Log* log) noexcept nogil        # forgets the block in the making
cdef int log_sync(Log* log) noexcept nogil
cdef int log_settle(Log* log) noexcept nogil        # sync, and a checkpoint that says so
# What was appended while `holding` is gone, and no reader has seen it. An errno: it is not covered
# with checkpoints yet, which the next log_settle() or opening does.
cdef int log_undo(Log* log) noexcept nogil
cdef int log_skip(Log* log, int64_t offset) noexcept nogil      # durable; >= log.next
cdef int log_awake(Log* log) noexcept nogil
cdef int emit(Log* log, BlockHeader* h, Piece* pieces) noexcept nogil       # a block, to the file
cdef int log_tick(Log* log) noexcept nogil          # flush, and rotate if the segment is old
# The flusher is done with it, has failed with rc, and has seen so many rotations: set `due`, and
# QUIET if nothing is pending.
cdef void log_rest(Log* log, int rc, int64_t rotations) noexcept nogil
cdef void log_fence(Log* log, bint fenced) noexcept nogil       # FENCED, or not any more
cdef int log_error(Log* log) noexcept nogil         # for a sink: an errno, or 0
# -- without any lock; may block for long --------------------------------------------------------
cdef int log_commit(Log* log, int64_t target) noexcept nogil    # until durable >= target
cdef int log_close(Log* log) noexcept nogil         # commit, leave a checkpoint, take nothing more


cdef inline size_t stamp_size(const uint8_t* at, size_t size) noexcept nogil:
    """Bytes of the stamp that a message begins with, in front of the key; 0: it has none."""
    cdef uint32_t spare = 0
    if size < STAMP:
        return 0
    if memcmp(at, b"MQS1", 4) == 0:
        return STAMP if stamp_key(at) <= size - STAMP else 0
    if size < LIFE_STAMP or memcmp(at, b"MQS2", 4) != 0:
        return 0
    memcpy(&spare, at + 36, 4)
    return LIFE_STAMP if spare == 0 and stamp_key(at) <= size - LIFE_STAMP else 0


cdef inline uint32_t stamp_key(const uint8_t* at) noexcept nogil:
    """Bytes of the key behind a stamp."""
    cdef uint32_t size
    memcpy(&size, at + 4, 4)
    return size


cdef inline int64_t now_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <int64_t> t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t> t.tv_sec * 1000000000 + t.tv_nsec


cdef inline int log_room(Log* log, size_t size) noexcept nogil:
    """Afterwards size bytes may be put at log_place(). EMSGSIZE: larger than a message may be."""
    if log.filled + size + 12 <= log.block_bytes and log.barred == 0 \
            and log.columns[<int> VALUES].n + size <= log.columns[<int> VALUES].cap \
            and log.columns[<int> TIMES].n + 8 <= log.columns[<int> TIMES].cap \
            and log.columns[<int> VALUE_ENDS].n + 4 <= log.columns[<int> VALUE_ENDS].cap:
        return 0
    return log_make_room(log, size)


cdef inline uint8_t* log_place(Log* log) noexcept nogil:
    return log.columns[<int> VALUES].at + log.columns[<int> VALUES].n


cdef inline int log_take(Log* log, size_t size, int64_t time) noexcept nogil:
    """The message at log_place() is whole. Only ENOMEM, DUPLICATE, and STAMP_OLD, STAMP_USED and
    STAMP_FENCED of tracks.pxd are possible, and only with optional columns; then it has not been
    taken."""
    cdef Buffer* values = &log.columns[<int> VALUES]
    cdef Buffer* times = &log.columns[<int> TIMES]
    cdef Buffer* ends = &log.columns[<int> VALUE_ENDS]
    cdef int rc
    values.n += size
    if log.flags or log.stamped:
        rc = log_optional(log, values.n - size)
        if rc:
            log_trim(log)
            return rc
    (<int64_t*> (times.at + times.n))[0] = time
    (<int32_t*> (ends.at + ends.n))[0] = <int32_t> values.n
    times.n += 8
    ends.n += 4
    log.filled += size + 12
    log.count += 1
    log.next += 1
    if time < log.block_low:
        log.block_low = time
    if time > log.block_high:
        log.block_high = time
    return 0
