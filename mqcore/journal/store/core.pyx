"""WriterCore: what appends, for Python and for devices. Opening, retention and the thread that
commits are in writer.py.

No thread waits for the log's lock with the GIL, so a holder of the lock may take the GIL back.
"""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_New
from libc.errno cimport EMSGSIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport getpid

from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_size,
)
from mqcore.base.status cimport MQ_CLOSED, MQ_DROPPED, MQ_FULL, MQ_GONE, MQ_INVALID, MQ_OK, MQ_STATE
from mqcore.journal.store.age cimport age_begin
from mqcore.journal.store.block cimport SEGMENT_HEADER, VERSION
from mqcore.journal.store.columns cimport (
    Rows, add_blocks, add_each, add_rows, check_ends, contiguous, ends_of, extras_of, get_buffer,
    many_of, micros, nothing, put_extras, rows_of, times_of, values_of,
)
from mqcore.journal.store.includes cimport (
    crc32c, crc32c_native, crc32c_portable, pthread_mutex_lock, pthread_mutex_trylock,
    pthread_mutex_unlock,
)
from mqcore.journal.store.gap cimport log_leap, log_pass
from mqcore.journal.store.log cimport (
    CLOSED, DUPLICATE, FENCED, FORKED, QUIET, Log, close_files, log_close, log_commit, log_error,
    log_fence, log_flush, log_free, log_make_room, log_new, log_place, log_rest,
    log_room, log_rotate, log_segment, log_show, log_skip, log_take, log_tick, log_trim, log_undo,
    now_us,
)
from mqcore.journal.store.packing cimport flag_of, packer
from mqcore.journal.store.process cimport forks
from mqcore.journal.store.producers cimport ProducerTable
from mqcore.journal.store.tracks cimport STAMP_FENCED, STAMP_OLD, STAMP_USED
from mqcore.spi.sink cimport SINK_ABI, Sink, SinkOps

import os

from mqcore.errors import Forked, MessageTooLarge, UsageError
from mqcore.journal.at_exit import closed_error
from mqcore.journal.errors import JournalClosed, JournalFenced
from mqcore.journal.errors import producer_fenced, stamp_refused, write_error
from mqcore.journal.store.compressors import codec

cdef enum:
    DIRECT = 64 << 10         # batches from this size on are written from where they lie


# -- the sink --------------------------------------------------------------------------------------

cdef int store(Log* log, Msg* parts, size_t n, int64_t now, int64_t* offset) noexcept nogil:
    cdef size_t size = 0, i, k
    cdef uint8_t* place
    cdef int rc
    for i in range(n):
        if not parts[i].flags & HIDDEN:
            size += msg_size(&parts[i])
    rc = log_room(log, size)
    if rc:
        return rc
    place = log_place(log)
    for i in range(n):
        if not parts[i].flags & HIDDEN:
            k = msg_size(&parts[i])
            memcpy(place, msg_data(&parts[i]), k)
            place += k
    log.origin = parts[0].peer if n else 0
    log.unstamped = not begins_with_stamp(parts, n)
    rc = log_take(log, size, now)
    log.origin = log.unstamped = 0
    if rc == STAMP_FENCED:
        offset[0] = log.twin
    if rc and rc != DUPLICATE:
        return rc
    offset[0] = log.next - 1 if rc == 0 else log.twin
    for i in range(n):
        msg_close(&parts[i])
    return rc


cdef int status_of(int rc) noexcept nogil:
    if rc == DUPLICATE:
        return MQ_DROPPED
    if rc == STAMP_OLD or rc == STAMP_USED:
        return MQ_GONE if rc == STAMP_OLD else MQ_STATE
    if rc == STAMP_FENCED:
        return MQ_CLOSED
    return MQ_OK if rc == 0 else MQ_INVALID if rc == EMSGSIZE else MQ_FULL


cdef int sink_take(void* self, MsgVec* v, size_t start, size_t* done) noexcept nogil:
    cdef Log* log = <Log*> self
    cdef int64_t now = now_us(), target, offset = 0
    cdef size_t at = start, end
    cdef int rc = 0
    pthread_mutex_lock(&log.lock)
    while at < v.n:
        end = at + 1
        while end < v.n and v.at[end - 1].flags & MSG_MORE:
            end += 1
        rc = store(log, v.at + at, end - at, now, &offset)
        if rc == 0 or rc == DUPLICATE:
            at = end
        if rc:
            break
    target = log.next
    pthread_mutex_unlock(&log.lock)
    done[0] = at
    if log.each and at > start:
        log_commit(log, target)         # what fails here is seen by durable() and ready()
    return status_of(rc)


cdef int sink_place(void* self, Msg* parts, size_t n, int64_t* offset,
                    uint32_t* partition) noexcept nogil:
    cdef Log* log = <Log*> self
    cdef int rc
    pthread_mutex_lock(&log.lock)
    rc = store(log, parts, n, now_us(), offset)
    pthread_mutex_unlock(&log.lock)
    partition[0] = log.segment.partition
    return status_of(rc)


cdef int sink_commit(void* self) noexcept nogil:
    cdef Log* log = <Log*> self
    cdef int64_t target
    pthread_mutex_lock(&log.lock)
    target = log.next
    pthread_mutex_unlock(&log.lock)
    return log_commit(log, target)


cdef int sink_error(void* self) noexcept nogil:
    return log_error(<Log*> self)


cdef int sink_ready(void* self) noexcept nogil:
    return log_error(<Log*> self) == 0


cdef int64_t sink_durable(void* self) noexcept nogil:
    return (<Log*> self).durable.load()


cdef SinkOps JOURNAL_SINK
JOURNAL_SINK.abi = SINK_ABI
JOURNAL_SINK.take = sink_take
JOURNAL_SINK.ready = sink_ready
JOURNAL_SINK.durable = sink_durable
JOURNAL_SINK.place = sink_place
JOURNAL_SINK.commit = sink_commit
JOURNAL_SINK.error = sink_error
JOURNAL_SINK.topic = NULL


# -- for Python ------------------------------------------------------------------------------------

cdef class WriterCore:
    def __cinit__(self, *args, **kw):
        self.log = log_new()
        if self.log == NULL:
            raise MemoryError
        self.shut = True
        self.born = forks()
        self.pid = getpid()

    def __dealloc__(self):
        if self.log != NULL:
            log_free(self.log)

    def _attach(self, path, int folder, object last, *, bytes topic, int partition, bytes journal,
                str fsync, size_t block_bytes, int64_t segment_bytes, int64_t segment_age,
                double pause, bint stamps, ProducerTable producers, str compression=None):
        """Begin to write. folder: a descriptor, ours from now on. last: (descriptor, header, end,
        next, low, high, checkpoint there) of the segment to go on with, or the offset to begin a
        new one at. pause: seconds until the flusher looks at what was appended. producers: whose
        messages are not stored twice; None: they are. compression: see compressors.py."""
        from mqcore.journal.store.durable import open_shown     # which imports this module
        cdef Log* log = self.log
        cdef int rc
        log.folder = folder
        log.block_bytes = block_bytes
        log.segment_bytes = segment_bytes
        log.segment_age = segment_age
        log.pause = <int64_t> (pause * 1e9)
        log.syncs = fsync == "interval"
        log.stamped = stamps
        if compression is not None:
            self.compress(compression)
        self.producers = producers
        if producers is not None:
            log.producers = &producers.all
        self.path = path
        self.fsync, self.partition = fsync, partition
        self.always = log.each = fsync == "always"
        self.topic = topic.decode()
        log.shown = open_shown(folder, path)
        if isinstance(last, int):
            memcpy(&log.segment.magic[0], b"MQJSEG\r\n", 8)
            log.segment.version = VERSION
            memcpy(&log.segment.journal[0], PyBytes_AS_STRING(journal), 16)
            log.segment.partition = partition
            self.call_it(topic)
            log.segment.begin = log.next = last
            rc = log_segment(log, last)
            if rc:
                raise write_error(rc, self.path)
        else:
            fd, header, log.pos, log.next, log.low, log.high, log.marked = last
            memcpy(&log.segment, PyBytes_AS_STRING(header), SEGMENT_HEADER)
            self.call_it(topic)       # of the next segment: the topic may have been renamed
            log.reach = log.pos
            log.fd = os.dup(fd)
            age_begin(log)
        log.written.store(log.next)
        log.durable.store(log.next)
        log.barred = 0
        log_rest(log, 0, 0)
        log_show(log, log.durable.load())
        self.shut = False

    cdef int call_it(self, bytes topic) except -1:
        memset(&self.log.segment.topic[0], 0, sizeof(self.log.segment.topic))
        self.log.segment.topic_size = <uint32_t> len(topic)
        memcpy(&self.log.segment.topic[0], PyBytes_AS_STRING(topic), len(topic))
        return 0

    cdef int compress(self, str name) except -1:
        self.codec = codec(name)
        self.log.codec = <void*> self.codec
        self.log.pack = packer()
        self.log.packs = flag_of(name)
        return 0

    cdef Sink sink(self):
        cdef Sink s
        s.ops = &JOURNAL_SINK
        s.self = self.log
        return s

    def _mq_sink(self):
        """For a device: see mqcore/spi/sink.pxd."""
        self._same_process()
        if self.shut:
            raise closed_error(self)
        self.own = self.sink()
        return PyCapsule_New(&self.own, "mqcore.sink", NULL)

    # -- appending --

    cdef int lock(self) except -1:
        if self.shut:
            self._same_process()
            raise closed_error(self)
        if pthread_mutex_trylock(&self.log.lock) != 0:
            with nogil:
                pthread_mutex_lock(&self.log.lock)
        return 0

    cdef int make_room(self, size_t size) except -1:
        """Call with the lock, which it releases before it raises."""
        cdef int rc
        with nogil:
            rc = log_make_room(self.log, size)
        if rc:
            pthread_mutex_unlock(&self.log.lock)
            self._raise(rc, 0)
        return 0

    def _raise(self, int rc, int64_t taken, int64_t life=0):
        """life: the newest, of STAMP_FENCED."""
        if rc == FORKED:
            self._same_process()
        if rc == CLOSED:
            raise closed_error(self)
        if rc == FENCED:
            raise self._fenced_error()
        if rc == EMSGSIZE:
            raise MessageTooLarge("a message, its key or its headers exceed 2 GiB",
                                  hint="store it elsewhere and its place here")
        if rc == STAMP_OLD or rc == STAMP_USED or rc == STAMP_FENCED:
            if self.always and taken:
                self._commit(self.log.next, taken)
            if rc == STAMP_FENCED:
                raise producer_fenced(life, taken)
            raise stamp_refused(2 if rc == STAMP_OLD else 3, taken)
        raise write_error(rc, self.path, taken=taken, broken=self.log.broken != 0)

    def append(self, value, *, key=None, time=None, headers=()) -> int:
        """Append one message and return its offset.

        value, key: bytes-like. A value of None is a tombstone: its key, which it must have, has no
        value any more. time: seconds since the epoch (None: now). headers: (name, value) pairs.
        With fsync="always" it is durable on return. For a duplicate (deduplicate=True) the result
        is the offset of the first, or -1 if it has been forgotten. Raises JournalWriteError:
        `taken` is 1 if the message is kept (commit() tries again), else 0.
        """
        cdef Log* log = self.log
        cdef int64_t offset, end, at = now_us() if time is None else micros(time)
        cdef Py_buffer view
        cdef const uint8_t* data
        cdef size_t size
        cdef bint null = value is None, held = not null and not PyBytes_CheckExact(value)
        cdef int rc
        if null:
            value = nothing(key)
        if held:
            get_buffer(value, &view)
            data = <const uint8_t*> view.buf
            size = view.len
        else:
            data = <const uint8_t*> PyBytes_AS_STRING(value)
            size = PyBytes_GET_SIZE(value)
        try:
            extras = None if key is None and not headers else extras_of(key, headers)
            self.lock()
            if log.filled + size + 12 > log.block_bytes or log.barred:
                self.make_room(size)
            rc = log_room(log, size)
            if rc == 0:
                memcpy(log_place(log), data, size)
                if extras is not None:
                    rc = put_extras(log, extras, null)
                if rc == 0:
                    rc = log_take(log, size, at)
                else:
                    log_trim(log)
            offset = log.next - 1 if rc == 0 else log.twin
            end = log.next
            pthread_mutex_unlock(&log.lock)
        finally:
            if held:
                PyBuffer_Release(&view)
        if rc and rc != DUPLICATE:
            self._raise(rc, 0, offset)
        if self.always:
            self._commit(end, 1)
        return offset

    def append_many(self, messages, *, keys=None, time=None) -> range:
        """Append a sequence of bytes-like messages; the offsets of those that are no duplicates.

        keys: a sequence of as many keys, bytes-like or None. A message of None is a tombstone, as
        in append(), and needs a key. Errors as in append_batch.
        """
        cdef Log* log = self.log
        cdef int64_t first = 0, end = 0, n = 0, life = 0
        cdef int64_t at = now_us() if time is None else micros(time)
        cdef const uint8_t* data
        cdef size_t size
        cdef int rc = 0
        cdef list extras, checked = [], nulls = []
        self._same_process()
        extras = many_of(messages, keys, checked, nulls)
        self.lock()
        first = log.next
        for value in checked:
            data = <const uint8_t*> PyBytes_AS_STRING(value)
            size = PyBytes_GET_SIZE(value)
            rc = 0 if log.filled + size + 12 <= log.block_bytes else self._flush_held()
            if rc == 0:
                rc = log_room(log, size)
            if rc:
                break
            memcpy(log_place(log), data, size)
            if extras is not None:
                rc = put_extras(log, <tuple> extras[n], nulls[n])
                if rc:
                    log_trim(log)
                    break
            rc = log_take(log, size, at)
            if rc and rc != DUPLICATE:
                break
            rc = 0
            n += 1
        end = log.next
        life = log.twin
        pthread_mutex_unlock(&log.lock)
        if rc:
            self._raise(rc, n, life)
        if self.always and n:
            self._commit(end, n)
        return range(first, end)

    def _flush_held(self):
        cdef int rc
        with nogil:
            rc = log_flush(self.log)
        return rc

    def _same_process(self):
        if self.born != forks():
            raise self._not_ours()

    def _not_ours(self):
        return Forked(f"the writer of {self.path} belongs to the process that opened it",
                      hint="open the journal in the process that writes it")

    def append_batch(self, data, offsets=None, *, times=None, keys=None):
        """Append many messages from arrays; the offsets of those that are no duplicates.

        data: a Batch (anything with `data` and `offsets`), or bytes-like with offsets int[n + 1]:
        message i is data[offsets[i]:offsets[i+1]]. times: seconds since the epoch, as float[n] or
        one number for all, or datetime64[n]; None: now. Arrays of whole numbers are refused, since
        they do not say their unit; microseconds are `times.view("datetime64[us]")`. keys: (data,
        offsets) likewise. From 64 KiB on, without keys and stamps, data is written from where it
        lies. Raises JournalWriteError, whose `taken` says how many of the messages are kept; do not
        append those again.
        """
        cdef const uint8_t[::1] values
        cdef const int64_t[::1] ends
        cdef int64_t now = 0
        if offsets is None:
            if getattr(data, "nulls", None) is not None:
                raise UsageError("append_batch stores no tombstones",
                                 hint="append_records() does, with keys and headers")
            try:
                data, offsets = data.data, data.offsets
            except AttributeError:
                raise UsageError("append_batch takes a Batch, or data and offsets",
                                 hint="append() takes one message") from None
        try:
            values = data
        except (TypeError, ValueError):
            values = values_of(data)
        try:
            ends = offsets
        except (TypeError, ValueError):
            ends = ends_of(offsets)
        if keys is not None:
            try:
                key_data, key_offsets = keys
            except (TypeError, ValueError):
                raise UsageError("keys are a pair: (data, offsets)") from None
            keys = values_of(key_data), ends_of(key_offsets)
        if times is None:
            now = now_us()
        elif isinstance(times, (int, float, str)) or getattr(times, "ndim", 1) == 0:
            now = micros(times)
            times = None
        else:
            times = times_of(times, ends.shape[0] - 1)
        return self.add_columns(values, ends, times, now, keys)

    cdef add_columns(self, const uint8_t[::1] values, const int64_t[::1] ends, times, int64_t now,
                     keys):
        """times: int64[n] of microseconds, or None: `now`."""
        cdef const uint8_t[::1] key_values
        cdef const int64_t[::1] key_ends, when
        cdef const int64_t* each = NULL
        cdef const uint8_t* at = NULL
        cdef const uint8_t* key_at = NULL
        cdef const int64_t* key_end_at = NULL
        cdef int64_t n = ends.shape[0] - 1, taken = 0, first = 0, end, life = 0
        cdef int rc
        check_ends(ends, values.shape[0])
        self._same_process()
        if values.shape[0]:
            at = &values[0]
        if keys is not None:
            key_values, key_ends = keys
            check_ends(key_ends, key_values.shape[0])
            if key_ends.shape[0] != n + 1:
                raise UsageError(f"{key_ends.shape[0] - 1} keys for {n} messages")
            key_end_at = &key_ends[0]
            key_at = <const uint8_t*> key_end_at     # not NULL, though all keys may be empty
            if key_values.shape[0]:
                key_at = &key_values[0]
        if times is not None:
            when = times
            each = &when[0] if n else NULL
        self.lock()
        if n == 0:
            pthread_mutex_unlock(&self.log.lock)
            return range(self.next, self.next)
        first = self.log.next
        with nogil:
            if key_at != NULL or self.log.stamped or ends[n] - ends[0] < DIRECT:
                rc = add_each(self.log, at, &ends[0], n, each, now, key_at, key_end_at,
                              &taken)
            else:
                rc = add_blocks(self.log, at, &ends[0], n, each, now, &taken)
            end = self.log.next
            life = self.log.twin
            pthread_mutex_unlock(&self.log.lock)
        if rc:
            self._raise(rc, taken, life)
        if self.always:
            self._commit(end, n)
        return range(first, end)

    def append_records(self, records):
        """Append a reader's batch with its times, keys, headers and stamps. Returns the offsets of
        messages that are not duplicates. Errors as in append_batch."""
        try:
            columns = records._columns
        except AttributeError:
            raise UsageError(f"append_records takes what a reader gave, not "
                             f"{type(records).__name__}") from None
        if {"key_ends", "header_ends", "producers", "value_valid"}.isdisjoint(columns):
            return self.add_columns(values_of(records.data), ends_of(records.offsets),
                                    contiguous(records._microseconds), 0, None)
        return self.add_records(records, None)

    def _append_in_place(self, records):
        """append_records() of a copy: each message keeps its offset, and `next` becomes that of the
        records. There are gaps where compaction has removed messages. They become durable with
        what follows, and readers see them with that. records: not below `next`."""
        self._skip(records.first, True, True)
        if records._places is None:
            self.append_records(records)
        else:
            self.add_records(records, contiguous(records._all_offsets()))

    cdef add_records(self, records, offsets):
        """offsets: int64[] of where they belong; None: to the end, one after the other."""
        cdef Rows rows
        cdef int64_t first, end, life = 0, taken = 0
        cdef int rc = 0
        self._same_process()
        hold = rows_of(records._columns, records._lo, records._hi, offsets, &rows)
        self.lock()
        first = self.log.next
        rc = self.log.barred if self.log.barred in (CLOSED, FORKED, FENCED) else 0
        with nogil:
            rc = rc or add_rows(self.log, &rows, &taken)
            end = self.log.next
            life = self.log.twin
            pthread_mutex_unlock(&self.log.lock)
        del hold
        if rc:
            self._raise(rc, taken, life)
        if self.always and taken:
            self._commit(end, taken)
        return range(first, end)

    # -- committing --

    def _commit(self, int64_t target, int64_t taken):
        cdef int rc
        self._same_process()
        with nogil:
            rc = log_commit(self.log, target)
        if rc:
            self._raise(rc, taken)

    def commit(self) -> int:
        """Make everything appended so far durable, whatever the policy; the offset below which all
        is. Threads that commit at the same time share one fsync."""
        cdef int64_t target
        self._same_process()
        self.lock()
        target = self.log.next
        pthread_mutex_unlock(&self.log.lock)
        self._commit(target, 0)
        return self.log.durable.load()

    def flush(self) -> int:
        """Hand everything appended so far to the kernel, where readers see it; the offset below
        which all is."""
        self._same_process()
        self.lock()
        rc = self._flush_held()
        pthread_mutex_unlock(&self.log.lock)
        if rc:
            self._raise(rc, 0)
        return self.log.written.load()

    def rotate(self) -> None:
        """End the segment file and begin the next, if there is anything in it."""
        cdef int rc
        self._same_process()
        self.lock()
        with nogil:
            rc = log_flush(self.log)
            if rc == 0 and self.log.low <= self.log.high:
                rc = log_rotate(self.log)
            pthread_mutex_unlock(&self.log.lock)
        if rc:
            self._raise(rc, 0)

    def _skip(self, int64_t offset, bint compacted, bint lazily=False) -> int:
        """Writer.skip(); the offset of the next message before. lazily: with what follows."""
        cdef int64_t next
        cdef int rc = 0
        self._same_process()
        self.lock()
        next = self.log.next
        if next < offset:
            with nogil:
                rc = (log_leap if lazily else log_pass if compacted else log_skip)(
                    self.log, offset)
        pthread_mutex_unlock(&self.log.lock)
        if rc:
            self._raise(rc, 0)
        return next

    def _hold(self) -> None:
        """Readers see what is appended from here on only once it is committed, by any thread; so
        until then _undo() can take it back. A full segment ends, and shows what it holds. Without
        effect if the writer deduplicates."""
        self._same_process()
        self.lock()
        rc = self._flush_held()
        if rc == 0:
            self.log.holding = self.log.producers == NULL
        pthread_mutex_unlock(&self.log.lock)
        if rc:
            self._raise(rc, 0)

    def _undo(self) -> bool:
        """Take back what was appended since _hold(): readers have seen none of it. False: it is
        too late, they may have seen some."""
        self._same_process()
        self.lock()
        if not self.log.holding or self.log.barred not in (0, QUIET):
            pthread_mutex_unlock(&self.log.lock)
            return False
        with nogil:
            log_undo(self.log)
            pthread_mutex_unlock(&self.log.lock)
        return True

    def _tick_flush(self) -> int:
        """The flusher: hand what is pending to the kernel, and rotate if it is time. An errno."""
        cdef int rc
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            rc = log_tick(self.log)
            pthread_mutex_unlock(&self.log.lock)
        return 0 if rc < 0 else rc

    def _tick_sync(self) -> int:
        """The flusher: commit what is written, if that is the policy. An errno."""
        cdef int rc = 0
        if self.log.syncs:
            with nogil:
                rc = log_commit(self.log, self.log.written.load())
        return 0 if rc < 0 else rc

    def _rest(self, int failed, int64_t rotations) -> int:
        """When the flusher is to look again (time.monotonic_ns()). rotations: those that it has
        seen."""
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            log_rest(self.log, failed, rotations)
            pthread_mutex_unlock(&self.log.lock)
        return self.log.due.load()

    @property
    def _due(self) -> int:
        return self.log.due.load()

    def _bar(self, bint fenced):
        """No call appends or commits any more, or all do again. Closing still keeps what was
        taken."""
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            log_fence(self.log, fenced)
            pthread_mutex_unlock(&self.log.lock)

    @property
    def _barred(self) -> bool:
        return self.log.barred == FENCED

    def _fenced_error(self):
        """Writer knows more."""
        return JournalFenced(f"the journal at {self.path} is fenced")

    def _close(self) -> int:
        """Commit and end. An errno, again for a call that is repeated; then appended - durable
        messages are lost."""
        cdef int rc = 0
        if not self.shut:
            self.shut = True
            with nogil:
                rc = log_close(self.log)
            self.ended_with = 0 if rc < 0 else rc
        return self.ended_with

    def __exit__(self, *_):
        """Compiled, so that a signal handler can raise in close() alone. That is then repeated: the
        end of a `with` block is nobody's to repeat."""
        try:
            self.close()
        except BaseException:
            self.close()
            raise

    def _abandon(self):
        """In a forked child: without waiting for anything."""
        self.shut = True

    def _detach(self):
        """Give the descriptors back; the numbers stay."""
        with nogil:
            close_files(self.log)

    # -- to look at --

    @property
    def _pid(self) -> int:
        return self.pid

    @property
    def _forked(self) -> bool:
        return self.born != forks()

    @property
    def next(self) -> int:
        """The offset that the next message gets."""
        return self.log.next

    @property
    def written(self) -> int:
        """Readers see every message below this offset."""
        return self.log.written.load()

    @property
    def durable(self) -> int:
        """Every message below this offset survives a power cut."""
        return self.log.durable.load()

    @property
    def duplicates(self) -> int:
        """Messages left out since they were stored already, since opening (deduplicate=True)."""
        return self.log.duplicates

    def _life_of(self, uint64_t producer) -> int:
        """The writer deduplicates."""
        self.lock()
        life = self.producers.life_of(producer)
        pthread_mutex_unlock(&self.log.lock)
        return life

    @property
    def deduplicates(self) -> bool:
        return self.producers is not None

    @property
    def closed(self) -> bool:
        return self.shut

    @property
    def error(self):
        """What keeps the writer from writing; None: nothing. One that the next attempt may cure
        (disk full), or one for good: after a failed fsync, and JournalClosed."""
        cdef int rc = self.log.broken or self.log.stalled
        if self.born != forks():
            return self._not_ours()
        if rc:
            return write_error(rc, self.path, broken=self.log.broken != 0)
        if self.log.barred == FENCED:
            return self._fenced_error()
        return JournalClosed(f"the writer of {self.path} is closed") if self.shut else None

    def _remembered(self) -> tuple:
        """(next offset, the producers of all messages below it as rows)."""
        self._same_process()
        if pthread_mutex_trylock(&self.log.lock) != 0:
            with nogil:
                pthread_mutex_lock(&self.log.lock)
        try:
            return self.log.next, self.producers.dump()
        finally:
            pthread_mutex_unlock(&self.log.lock)

    def _counters(self) -> dict:
        known = {} if self.producers is None else self.producers.counters()
        return {**known, "duplicates": self.log.duplicates,
                "fenced": self.log.fenced, "syncs": self.log.syncs_done,
                "rotations": self.log.rotations,
                "pos": self.log.pos, "waiting": self.log.count, "segment": self.log.segment.first,
                "blocks": self.log.blocks, "bytes": self.log.bytes, "sync_ns": self.log.sync_ns,
                "sync_longest": self.log.sync_longest}


# -- small things ----------------------------------------------------------------------------------

def checksum(data, unsigned int crc=0, *, bint portable=False) -> int:
    """CRC-32C of bytes, going on from an earlier one; portable: without the CPU's instruction."""
    cdef const uint8_t[::1] view = data
    cdef size_t n = view.shape[0]
    cdef const uint8_t* at = NULL
    if n:
        at = &view[0]
    with nogil:
        crc = crc32c_portable(crc, at, n) if portable else crc32c(crc, at, n)
    return crc


def checksum_native() -> bool:
    return crc32c_native()
