"""Blocks and their files: building, writing, rotating, committing. The manual is log.pxd."""

from libc.errno cimport EMSGSIZE, ESHUTDOWN, errno
from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from mqcore.base.includes cimport iovec
from mqcore.journal.store cimport includes as system
from mqcore.journal.store.age cimport age_begin, grown_old, too_old
from mqcore.journal.store.block cimport (
    ALIGN, BLOCK_HEADER, COLUMNS, COMPACTED, DATA, DATUM_ENDS, HAS_HEADERS, HAS_KEYS, HAS_LIVES,
    HAS_NULLS, HAS_STAMPS, HEADER_ENDS, KEY_ENDS, KEY_VALID, KEYS, MODERN, NAME_ENDS, NAMES,
    PACKED_VERSION, PRODUCERS, SEGMENT_HEADER, SENT, SEQUENCES, TIMES, VALUE_ENDS, VALUE_MAX,
    VALUES, VERSION,
    BlockHeader, block_end, block_header_crc, segment_header_crc,
)
from mqcore.journal.store.buffer cimport buffer_room, buffer_trim, push, push_end, push_zeros
from mqcore.journal.store.disk cimport NOTHING, write_all, write_over
from mqcore.journal.store.gap cimport gap_write, place_next, place_trim, places_into, reached
from mqcore.journal.store.includes cimport (
    F_DUPFD_CLOEXEC, O_CLOEXEC, O_CREAT, O_EXCL, O_RDWR, crc32c, fcntl, getrandom, openat,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
    system_fdatasync, system_pwritev,
)
from mqcore.journal.store.intact cimport intact, kept
from mqcore.journal.store.nulls cimport null_or_not, null_taken, null_trim, raise_version
from mqcore.journal.store.packed cimport crc_of, line_up, outdated, pack_block
from mqcore.journal.store.process cimport bell_ring, log_delist, log_enlist
from mqcore.journal.store.producers cimport mark_of, producers_add, producers_heard, producers_known
from mqcore.journal.store.stamping cimport (
    has_key, has_stamp, life_or_not, life_taken, life_trim, take_stamp,
)
from mqcore.journal.store.tracks cimport STAMP_FENCED, STAMP_STORED
from mqcore.journal.store.withheld cimport withheld_add, withheld_drop, withheld_show

cdef enum:
    KEEP = 4                  # a column's memory is kept up to so many blocks' worth
    FILL = 64                 # checkpoints written at a time
    RETRY = 1000000000        # ns after a failure

# -- life ----------------------------------------------------------------------------------------

cdef Log* log_new() noexcept nogil:
    cdef Log* log = <Log*> calloc(1, sizeof(Log))
    if log == NULL:
        return NULL
    pthread_mutex_init(&log.lock, NULL)
    pthread_mutex_init(&log.sync_lock, NULL)
    pthread_mutex_init(&log.flight, NULL)
    log.ops.pwritev = system_pwritev
    log.ops.fdatasync = system_fdatasync
    log.folder = -1
    log.fd = -1
    log.shown = -1
    log.last = -1
    log.low = LLONG_MAX
    log.high = LLONG_MIN
    log.barred = CLOSED
    log.due.store(NEVER)
    log_empty(log)
    log_enlist(log)
    return log


cdef void close_files(Log* log) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    if log.fd >= 0:
        system.close(log.fd)
    if log.folder >= 0:
        system.close(log.folder)
    if log.shown >= 0:
        system.close(log.shown)
    log.fd = log.folder = log.shown = -1
    pthread_mutex_unlock(&log.lock)


cdef void log_show(Log* log, int64_t durable) noexcept nogil:
    """In place and without a sync: it says what has been synced already. If it fails, readers see
    what block headers say, which is later."""
    cdef uint8_t[32] row
    cdef uint32_t crc, closed = log.barred == CLOSED
    if log.shown < 0:
        return
    memset(row, 0, 32)
    memcpy(row, log.segment.journal, 16)
    memcpy(row + 16, &durable, 8)
    crc = crc32c(0, row, 24)
    memcpy(row + 24, &crc, 4)
    memcpy(row + 28, &closed, 4)
    system.pwrite(log.shown, row, 32, 0)


cdef void log_promise(Log* log, int64_t durable) noexcept nogil:
    """Everything below is durable. Readers see it first: a program that gets an acknowledgement,
    and reads, must find the message."""
    log_show(log, durable)
    log.durable.store(durable)


cdef void log_free(Log* log) noexcept nogil:
    cdef int i
    log_delist(log)
    close_files(log)
    for i in range(COLUMNS):
        free(log.columns[i].at)
    free(log.withheld.at)
    free(log.packed.at)
    free(log.places.at)
    pthread_mutex_destroy(&log.lock)
    pthread_mutex_destroy(&log.sync_lock)
    pthread_mutex_destroy(&log.flight)
    free(log)


# -- what keeps a log from taking messages, and wakes the flusher ----------------------------------

cdef int log_awake(Log* log) noexcept nogil:
    """Something is about to be pending: the flusher will look. Or why that cannot be."""
    cdef int64_t due = now_ns() + log.pause
    if log.barred == QUIET:
        log.barred = 0
        if due < log.due.load():
            log.due.store(due)
        bell_ring(due)
    return log.barred


cdef int log_break(Log* log, int rc) noexcept nogil:
    """Nothing can be promised any more."""
    log.broken = rc
    if log.barred == 0 or log.barred == QUIET:
        log.barred = rc
    return rc


cdef void log_fence(Log* log, bint fenced) noexcept nogil:
    if log.barred != CLOSED and log.barred != FORKED and fenced != (log.barred == FENCED):
        log.barred = FENCED if fenced else log.broken or QUIET


cdef int log_error(Log* log) noexcept nogil:
    return log.broken or log.stalled or (
        ESHUTDOWN if log.barred in (CLOSED, FORKED, FENCED) else 0)


cdef void log_rest(Log* log, int rc, int64_t rotations) noexcept nogil:
    cdef bint pending = log.next > reached(log) or log.rotations != rotations \
        or log.syncs and log.durable.load() < log.written.load()
    if log.barred != 0 and log.barred != QUIET:
        log.due.store(NEVER)
        return
    if rc:
        log.due.store(now_ns() + (RETRY if RETRY > log.pause else log.pause))
    elif pending:
        log.due.store(now_ns() + log.pause)
    else:
        log.due.store(grown_old(log))
        log.barred = QUIET


# -- memory of the block in the making -------------------------------------------------------------

cdef void log_empty(Log* log) noexcept nogil:
    """A new block in the making; memory that only a huge message needed is given back."""
    cdef int i
    for i in range(COLUMNS):
        log.columns[i].n = 0
        buffer_trim(&log.columns[i], KEEP * log.block_bytes)
    if log.columns[<int> VALUE_ENDS].cap:
        push_end(&log.columns[<int> VALUE_ENDS], 0)     # else log_make_room() does it
    log.places.n = 0
    buffer_trim(&log.places, KEEP * log.block_bytes)
    log.count = 0
    log.flags = 0
    log.nulls = 0
    log.lived = 0
    log.filled = 0
    log.block_low = LLONG_MAX
    log.block_high = LLONG_MIN


cdef int log_make_room(Log* log, size_t size) noexcept nogil:
    cdef int rc
    if size > VALUE_MAX - ALIGN:
        return EMSGSIZE
    if log.barred:
        rc = log_awake(log)
        if rc:
            return rc
    if log.count and log.filled + size + 12 > log.block_bytes:
        rc = log_flush(log)
        if rc:
            return rc
    rc = buffer_room(&log.columns[<int> VALUES], size)
    if rc == 0:
        rc = buffer_room(&log.columns[<int> TIMES], 8)
    if rc == 0:
        rc = buffer_room(&log.columns[<int> VALUE_ENDS], 8)
    if rc == 0 and log.columns[<int> VALUE_ENDS].n == 0:
        rc = push_end(&log.columns[<int> VALUE_ENDS], 0)
    return rc


# -- optional columns ------------------------------------------------------------------------------
# A block has such a column from the first message on that needs it: what came before gets nulls.

cdef int with_keys(Log* log) noexcept nogil:
    cdef int rc
    if log.flags & HAS_KEYS:
        return 0
    log.columns[<int> KEY_ENDS].n = log.columns[<int> KEY_VALID].n = 0
    rc = push_zeros(&log.columns[<int> KEY_ENDS], 4 * (<size_t> log.count + 1))
    if rc == 0:
        rc = push_zeros(&log.columns[<int> KEY_VALID], (<size_t> log.count + 7) // 8)
    if rc == 0:
        log.flags |= HAS_KEYS
        log.filled += log.columns[<int> KEY_ENDS].n
    return rc


cdef int with_headers(Log* log) noexcept nogil:
    cdef int rc, i
    if log.flags & HAS_HEADERS:
        return 0
    for i in range(<int> HEADER_ENDS, <int> DATA + 1):
        log.columns[i].n = 0
    rc = push_zeros(&log.columns[<int> HEADER_ENDS], 4 * (<size_t> log.count + 1))
    if rc == 0:
        rc = push_end(&log.columns[<int> NAME_ENDS], 0)
    if rc == 0:
        rc = push_end(&log.columns[<int> DATUM_ENDS], 0)
    if rc == 0:
        log.flags |= HAS_HEADERS
        log.filled += log.columns[<int> HEADER_ENDS].n
    return rc


cdef int next_key(Log* log, const uint8_t* key, size_t size) noexcept nogil:
    """key NULL: none."""
    cdef Buffer* valid = &log.columns[<int> KEY_VALID]
    cdef int rc
    if log.columns[<int> KEYS].n + size > VALUE_MAX:
        return EMSGSIZE
    rc = push(&log.columns[<int> KEYS], key, size)
    if rc == 0 and log.count % 8 == 0:
        rc = push_zeros(valid, 1)
    if rc == 0:
        rc = push_end(&log.columns[<int> KEY_ENDS], log.columns[<int> KEYS].n)
    if rc == 0 and key != NULL:
        valid.at[log.count // 8] |= <uint8_t> (1 << log.count % 8)
    log.filled += size + 5
    return rc


cdef int log_key(Log* log, const uint8_t* key, size_t size) noexcept nogil:
    cdef int rc = with_keys(log)
    return rc if rc else next_key(log, key, size)


cdef int log_header(Log* log, const uint8_t* name, size_t name_size, const uint8_t* datum,
                    size_t datum_size) noexcept nogil:
    cdef int rc
    if log.columns[<int> NAMES].n + name_size > VALUE_MAX \
            or log.columns[<int> DATA].n + datum_size > VALUE_MAX:
        return EMSGSIZE
    rc = with_headers(log)
    if rc == 0:
        rc = push(&log.columns[<int> NAMES], name, name_size)
    if rc == 0:
        rc = push(&log.columns[<int> DATA], datum, datum_size)
    if rc == 0:
        rc = push_end(&log.columns[<int> NAME_ENDS], log.columns[<int> NAMES].n)
    if rc == 0:
        rc = push_end(&log.columns[<int> DATUM_ENDS], log.columns[<int> DATA].n)
    log.filled += name_size + datum_size + 8
    return rc


cdef int log_headers_end(Log* log) noexcept nogil:
    log.filled += 4
    return push_end(&log.columns[<int> HEADER_ENDS], log.columns[<int> NAME_ENDS].n // 4 - 1)


cdef int log_optional(Log* log, size_t start) noexcept nogil:
    """What the message that ends now has not given of the columns that the block has."""
    cdef int rc = 0
    if (log.stamped or log.flags & HAS_STAMPS) and not has_stamp(log):
        rc = take_stamp(log, start)     # may bring a key
    if rc == 0 and log.flags & HAS_KEYS and not has_key(log):
        rc = next_key(log, NULL, 0)
    if rc == 0 and log.flags & HAS_HEADERS \
            and log.columns[<int> HEADER_ENDS].n < 4 * (<size_t> log.count + 2):
        rc = log_headers_end(log)
    if rc == 0 and log.flags & HAS_NULLS:
        rc = null_or_not(log)
    if rc == 0 and (log.life or log.flags & HAS_LIVES):
        rc = life_or_not(log)
    if rc == 0 and log.flags & COMPACTED:
        rc = place_next(log)
    if rc == 0 and log.producers != NULL:
        rc = remember(log)
    if rc == 0:
        null_taken(log)
        life_taken(log)
    return rc


cdef inline size_t end_of(Log* log, int column, size_t i) noexcept nogil:
    return (<int32_t*> log.columns[column].at)[i]


cdef int remember(Log* log) noexcept nogil:
    """Remember the producer of the message in the making, which cannot fail any more. DUPLICATE: it
    is stored already, and counted; STAMP_OLD, STAMP_USED: it cannot be told from another;
    STAMP_FENCED: a newer life of its producer has begun, and it is counted."""
    cdef size_t start = end_of(log, VALUE_ENDS, log.count), key_at = 0, key_size = 0
    cdef uint64_t producer, sequence
    cdef uint32_t mark
    cdef int rc
    if not log.flags & HAS_STAMPS:
        return 0
    producer = (<uint64_t*> log.columns[<int> PRODUCERS].at)[log.count]
    if producer == 0:
        return 0
    sequence = (<uint64_t*> log.columns[<int> SEQUENCES].at)[log.count]
    if log.flags & HAS_KEYS:
        key_at = end_of(log, KEY_ENDS, log.count)
        key_size = end_of(log, KEY_ENDS, log.count + 1) - key_at
    mark = mark_of(log.columns[<int> KEYS].at + key_at, key_size,
                   log.columns[<int> VALUES].at + start, log.columns[<int> VALUES].n - start)
    if log.null:
        mark = ~mark
    rc = producers_known(log.producers, producer, log.life, sequence, mark, &log.twin)
    if rc == STAMP_STORED:
        producers_heard(log.producers, log.origin, producer)
        log.duplicates += 1
        return DUPLICATE
    log.fenced += rc == STAMP_FENCED
    return rc if rc else producers_add(log.producers, log.origin, producer, log.life, sequence,
                                       mark, log.next)


cdef void log_trim(Log* log) noexcept nogil:
    cdef size_t n = log.count
    cdef size_t headers
    cdef uint8_t keep
    cdef int column
    log.columns[<int> VALUES].n = end_of(log, VALUE_ENDS, n) if log.columns[
        <int> VALUE_ENDS].n else 0
    if log.flags & HAS_KEYS:
        log.columns[<int> KEY_ENDS].n = 4 * (n + 1)
        log.columns[<int> KEYS].n = end_of(log, KEY_ENDS, n)
        log.columns[<int> KEY_VALID].n = (n + 7) // 8
        if n % 8:
            keep = <uint8_t> ((1 << n % 8) - 1)
            log.columns[<int> KEY_VALID].at[n // 8] &= keep
    if log.flags & HAS_HEADERS:
        log.columns[<int> HEADER_ENDS].n = 4 * (n + 1)
        headers = end_of(log, HEADER_ENDS, n)
        log.columns[<int> NAME_ENDS].n = 4 * (headers + 1)
        log.columns[<int> DATUM_ENDS].n = 4 * (headers + 1)
        log.columns[<int> NAMES].n = end_of(log, NAME_ENDS, headers)
        log.columns[<int> DATA].n = end_of(log, DATUM_ENDS, headers)
    if log.flags & HAS_STAMPS:
        for column in range(<int> PRODUCERS, <int> SENT + 1):
            log.columns[column].n = 8 * n
    if log.flags & HAS_NULLS:
        null_trim(log)
    life_trim(log)
    place_trim(log)
    log.filled = log.places.n
    for column in range(<int> COLUMNS):
        log.filled += log.columns[column].n


# -- writing ---------------------------------------------------------------------------------------

cdef int undisturbed(Log* log) noexcept nogil:
    """Before each block and after each sync: the file is as we left it. Else nothing is promised
    any more: there is another writer, which the lock has not kept out, or the file was removed."""
    cdef int rc = kept(log.fd, log.last, log.last_crc)
    if rc == 0 and not log.torn:
        rc = intact(log.fd, log.reach)
    return log_break(log, rc) if rc else 0


cdef int put(Log* log, BlockHeader* h, iovec* iov, int n) noexcept nogil:
    """A finished block to the end of the file. The next block takes the place of one that could not
    be written whole. The file is never cut: a reader may have mapped what would go."""
    cdef int rc
    memcpy(&h.magic[0], b"MQB1", 4)
    h.durable = log.durable.load()
    h.crc = block_header_crc(h, log.segment.salt)
    rc = undisturbed(log)
    if rc == 0 and log.holding:
        iov[0].iov_base = <void*> NOTHING
        rc = buffer_room(&log.withheld, BLOCK_HEADER)
    if rc:
        return rc
    if log.reach > log.pos:
        rc = write_over(log, iov, n, log.pos)
    else:
        rc = write_all(log, iov, n, log.pos)
    log.torn = rc != 0
    if rc:
        return rc
    if log.holding:
        return withheld_add(log, h)
    log.last = log.pos
    log.last_crc = h.crc
    log.pos += h.size
    log.marked = False
    log.written.store(block_end(h))
    return 0


cdef int emit(Log* log, BlockHeader* h, Piece* pieces) noexcept nogil:
    """line_up(), and to the file."""
    cdef iovec iov[35]
    cdef int rc, n = line_up(h, pieces, iov)
    if log.packs and h.count:
        n = pack_block(log, h, iov, n)
    h.body_crc = crc_of(iov, n)
    log.nulled = log.nulled or h.flags & MODERN != 0
    if outdated(log, h) or (log.written.load() > log.segment.first or log.withheld.n) and (
            log.pos + <int64_t> h.size > log.segment_bytes or too_old(log)):
        rc = log_rotate(log)
        if rc:
            return rc
    if h.flags & MODERN and log.segment.version < PACKED_VERSION:
        rc = undisturbed(log) or raise_version(log)
        if rc:
            return rc
    rc = put(log, h, iov, n)
    if log.packs:
        buffer_trim(&log.packed, KEEP * log.block_bytes)
    if rc:
        return rc
    log.blocks += 1
    log.bytes += <int64_t> h.size
    if h.min_time < log.low:
        log.low = h.min_time
    if h.max_time > log.high:
        log.high = h.max_time
    return 0


cdef int flush_block(Log* log) noexcept nogil:
    """The block in the making, which has messages."""
    cdef BlockHeader h
    cdef Piece pieces[17]
    cdef int i, rc = 0
    memset(&h, 0, sizeof(h))
    memset(pieces, 0, sizeof(pieces))
    h.first = log.next - log.count
    h.count = log.count
    h.flags = log.flags
    h.min_time = log.block_low
    h.max_time = log.block_high
    for i in range(COLUMNS):
        pieces[i].at = log.columns[i].at
        pieces[i].n = log.columns[i].n
    if log.flags & COMPACTED:
        places_into(log, &h, &pieces[<int> COLUMNS])
    if h.first > reached(log):
        rc = gap_write(log, h.first)
    if rc == 0:
        rc = emit(log, &h, pieces)
    if rc == 0:
        log_empty(log)
    return rc


cdef int log_flush(Log* log) noexcept nogil:
    cdef int rc = 0
    if log.barred and log.barred != QUIET:
        return log.barred
    if log.next == reached(log):
        return 0
    if log.count:
        rc = flush_block(log)
    if rc == 0 and log.next > reached(log):     # a gap with no message behind it yet
        rc = gap_write(log, log.next)
    log.stalled = rc
    return rc


cdef int log_direct(Log* log, const uint8_t* values, const int32_t* ends, const int64_t* times,
                    uint32_t n, int64_t now) noexcept nogil:
    cdef BlockHeader h
    cdef Piece pieces[17]
    cdef Buffer* own = &log.columns[<int> TIMES]
    cdef uint32_t i
    cdef int rc = log_flush(log)
    if rc == 0 and log.barred:
        rc = log_awake(log)
    if rc:
        return rc
    memset(&h, 0, sizeof(h))
    memset(pieces, 0, sizeof(pieces))
    h.first = log.next
    h.count = n
    if times == NULL:
        rc = buffer_room(own, 8 * <size_t> n)
        if rc:
            return rc
        for i in range(n):
            (<int64_t*> own.at)[i] = now
        times = <const int64_t*> own.at
        h.min_time = h.max_time = now
    else:
        h.min_time = LLONG_MAX
        h.max_time = LLONG_MIN
        for i in range(n):
            h.min_time = times[i] if times[i] < h.min_time else h.min_time
            h.max_time = times[i] if times[i] > h.max_time else h.max_time
    pieces[<int> TIMES].at = <const uint8_t*> times
    pieces[<int> TIMES].n = 8 * <size_t> n
    pieces[<int> VALUE_ENDS].at = <const uint8_t*> ends
    pieces[<int> VALUE_ENDS].n = 4 * (<size_t> n + 1)
    pieces[<int> VALUES].at = values
    pieces[<int> VALUES].n = ends[n]
    rc = emit(log, &h, pieces)
    if rc == 0:
        log.next += n
    return rc


# -- files -----------------------------------------------------------------------------------------

cdef int sync_file(Log* log, int fd, int64_t* took) noexcept nogil:
    """With `flight`. took: ns."""
    cdef int64_t began = now_ns()
    cdef int rc = log.failed
    if rc == 0 and log.ops.fdatasync(log.ops.self, fd) != 0:
        rc = log.failed = errno
    took[0] = now_ns() - began
    return rc


cdef void count_sync(Log* log, int64_t took) noexcept nogil:
    log.syncs_done += 1
    log.sync_ns += took
    if took > log.sync_longest:
        log.sync_longest = took


cdef int log_sync(Log* log) noexcept nogil:
    """Make everything written durable. After a failure that is unknown, so the log is broken."""
    cdef int64_t took = 0
    cdef int rc
    pthread_mutex_lock(&log.flight)     # waits for a commit, which may get the error that is ours
    rc = sync_file(log, log.fd, &took)
    pthread_mutex_unlock(&log.flight)
    if rc:
        return log_break(log, rc)
    rc = undisturbed(log)
    if rc:
        return rc
    count_sync(log, took)
    log_promise(log, log.written.load())
    return 0


cdef int mark(Log* log) noexcept nogil:
    """A checkpoint to the end of the file; as many as cover what a failed write has left there."""
    cdef BlockHeader h
    cdef iovec[FILL] iov
    cdef int64_t n = (log.reach - log.pos) // BLOCK_HEADER     # less than a header comes last
    cdef int i, rc
    n = 1 if n < 1 else FILL if n > FILL else n
    memset(&h, 0, sizeof(h))
    h.first = log.written.load()
    h.size = BLOCK_HEADER
    h.min_time = log.low
    h.max_time = log.high
    for i in range(<int> n):
        iov[i].iov_base = &h
        iov[i].iov_len = BLOCK_HEADER
    memcpy(&h.magic[0], b"MQB1", 4)
    h.durable = log.durable.load()
    h.crc = block_header_crc(&h, log.segment.salt)
    rc = write_all(log, iov, <int> n, log.pos)
    log.torn = rc != 0
    if rc == 0:
        log.last = log.pos
        log.last_crc = h.crc
        log.pos += n * BLOCK_HEADER
        log.marked = True
    return rc


cdef int show(Log* log) noexcept nogil:
    """What readers were not to see yet."""
    cdef int rc = undisturbed(log) if log.withheld.n else 0
    return rc if rc else withheld_show(log)


cdef int log_undo(Log* log) noexcept nogil:
    cdef bint partly = log.partly
    cdef int rc = 0
    log_empty(log)
    withheld_drop(log)
    log.next = log.written.load()
    log.stalled = 0
    if log.reach > log.pos:
        rc = log_settle(log)
        if rc and log.reach - log.pos < BLOCK_HEADER:
            rc = log_sync(log)      # no room for the last checkpoint: no block is left
    # a header that is left behind what was taken back may fit what is written over it
    return log_break(log, rc) if rc and partly else rc


cdef int log_settle(Log* log) noexcept nogil:
    """Sync, then write a checkpoint that records it: damage before it is not a torn tail."""
    cdef int rc = show(log)
    if rc == 0:
        rc = log_sync(log)
    if rc or log.marked and log.reach <= log.pos:
        return rc
    while rc == 0 and (not log.marked or log.pos < log.reach):
        rc = mark(log)
    return rc if rc else log_sync(log)


cdef int begin_file(Log* log, int fd, SegmentHeader* h) noexcept nogil:
    cdef iovec iov[1]
    cdef int64_t reach = log.reach
    cdef int old = log.fd, rc
    iov[0].iov_base = h
    iov[0].iov_len = SEGMENT_HEADER
    log.fd = fd
    rc = write_all(log, iov, 1, 0)
    if rc == 0 and (log.ops.fdatasync(log.ops.self, fd) != 0 or system.fsync(log.folder) != 0):
        rc = errno
    log.fd = old
    log.reach = reach
    return rc


cdef int log_segment(Log* log, int64_t first) noexcept nogil:
    """The header is durable before the first block is written."""
    cdef SegmentHeader h = log.segment
    cdef char[32] name
    cdef int fd, rc
    snprintf(name, sizeof(name), b"%020lld.mqj", <long long> first)
    h.version = PACKED_VERSION if log.packs or log.nulled else VERSION
    h.first = first
    h.created = now_us()
    if getrandom(&h.salt, sizeof(h.salt), 0) != sizeof(h.salt):
        return errno
    h.crc = segment_header_crc(&h)
    fd = openat(log.folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    if fd < 0:
        return errno
    rc = begin_file(log, fd, &h)
    if rc:
        system.close(fd)
        system.unlinkat(log.folder, name, 0)
        return rc
    if log.fd >= 0:
        system.close(log.fd)
    log.fd = fd
    log.segment = h
    age_begin(log)
    log.pos = log.reach = SEGMENT_HEADER
    log.last = -1
    log.torn = False
    log.low = LLONG_MAX
    log.high = LLONG_MIN
    log.marked = False
    return 0


cdef int log_rotate(Log* log) noexcept nogil:
    cdef int rc = log_settle(log)
    if rc == 0:
        rc = log_segment(log, log.written.load())
    if rc == 0:
        log.rotations += 1
        log_awake(log)        # the flusher looks at what retention gives up
    return rc


cdef int log_skip(Log* log, int64_t offset) noexcept nogil:
    """As a repair leaves it: a checkpoint that goes on at this offset."""
    cdef int64_t before
    cdef int rc = log_flush(log)
    if rc == 0 and log.barred:
        rc = log_awake(log)
    if rc == 0:
        rc = log_settle(log)
    if rc:
        return rc
    before = log.written.load()
    log.written.store(offset)
    rc = mark(log)
    if rc:
        log.written.store(before)
        return rc
    log.next = offset
    return log_sync(log)


cdef int log_tick(Log* log) noexcept nogil:
    cdef int rc = log_flush(log)
    return log_rotate(log) if rc == 0 and log.low <= log.high and too_old(log) else rc


# -- committing ------------------------------------------------------------------------------------

cdef int log_commit(Log* log, int64_t target) noexcept nogil:
    cdef int64_t written = 0, took = 0
    cdef int rc, unwritten, fd = -1
    if log.durable.load() >= target:
        return 0
    pthread_mutex_lock(&log.sync_lock)
    if log.durable.load() >= target:    # the thread that synced while we waited did it for us
        pthread_mutex_unlock(&log.sync_lock)
        return 0
    pthread_mutex_lock(&log.lock)
    unwritten = log_flush(log)      # a full disk, say; what is written becomes durable all the same
    if unwritten == 0:
        unwritten = show(log)
    written = log.written.load()
    rc = log.broken
    if (log.barred == 0 or log.barred == QUIET) and written > log.durable.load():
        fd = fcntl(log.fd, F_DUPFD_CLOEXEC, 0)      # a rotation may close the other meanwhile
        if fd < 0:
            rc = log_sync(log)              # no descriptors left: appending waits
        else:
            pthread_mutex_lock(&log.flight)
    pthread_mutex_unlock(&log.lock)
    if fd >= 0:
        rc = sync_file(log, fd, &took)
        pthread_mutex_unlock(&log.flight)
        system.close(fd)
        pthread_mutex_lock(&log.lock)
        rc = rc or log.broken or undisturbed(log)   # a rotation's fdatasync may have failed
        if rc:
            log_break(log, rc)
        else:
            count_sync(log, took)
            if log.durable.load() < written:        # a rotation may have synced more
                log_promise(log, written)
        pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.sync_lock)
    return rc or unwritten


cdef int log_close(Log* log) noexcept nogil:
    cdef int rc
    pthread_mutex_lock(&log.sync_lock)
    pthread_mutex_lock(&log.lock)
    log_fence(log, False)       # what it has taken is kept, to compare the two journals
    rc = log_flush(log)
    if rc == 0:
        rc = log_settle(log)
    if log.barred != FORKED:
        log.barred = CLOSED
    if rc == 0:
        log_show(log, log.durable.load())       # once more: it is closed
    log.due.store(NEVER)
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.sync_lock)
    return rc
