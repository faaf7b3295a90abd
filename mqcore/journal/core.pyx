"""WriterCore: what appends, for Python and for devices. Opening, retention and the thread that
commits are in writer.py.

No thread waits for the log's lock with the GIL, so a holder of the lock may take the GIL back.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_New
from libc.errno cimport EEXIST, EMSGSIZE, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.unistd cimport getpid

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_MORE, MSG_ROUTING_ID, Msg, MsgVec, msg_close, msg_data, msg_size,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_GONE, MQ_INVALID, MQ_OK, MQ_STATE
from mqcore.journal.block cimport SEGMENT_HEADER, VALUE_MAX, VERSION
from mqcore.journal.includes cimport (
    O_CLOEXEC, O_CREAT, O_RDWR, crc32c, crc32c_native, crc32c_portable, openat, pthread_mutex_lock,
    pthread_mutex_trylock, pthread_mutex_unlock,
)
from mqcore.journal.log cimport (
    Log, close_files, log_close, log_commit, log_direct, log_flush, log_free, log_header,
    log_headers_end, log_key, log_make_room, log_new, log_place, log_room, log_rotate,
    log_segment, log_show, log_stamp, log_take, log_tick, log_trim, now_us,
)
from mqcore.journal.producers cimport STAMP_OLD, STAMP_USED, ProducerTable
from mqcore.spi.sink cimport SINK_ABI, Sink, SinkOps

import os

from mqcore.errors import Forked, MessageTooLarge, UsageError
from mqcore.journal.errors import JournalClosed, stamp_refused, write_error

cdef enum:
    DIRECT = 64 << 10         # batches from this size on are written from where they lie
    # parts that say where a message came from or goes to, and are not stored
    HIDDEN = <int> MSG_ENVELOPE | <int> MSG_ROUTING_ID | <int> MSG_GROUP


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
    rc = log_take(log, size, now)
    if rc and rc != EEXIST:
        return rc
    offset[0] = log.next - 1 if rc == 0 else log.twin
    for i in range(n):
        msg_close(&parts[i])
    return rc


cdef int status_of(int rc) noexcept nogil:
    if rc == EEXIST:
        return MQ_DROPPED
    if rc == STAMP_OLD or rc == STAMP_USED:
        return MQ_GONE if rc == STAMP_OLD else MQ_STATE
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
        if rc == 0 or rc == EEXIST:
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
    return log_commit(log, log.next)


cdef int sink_error(void* self) noexcept nogil:
    cdef Log* log = <Log*> self
    return log.broken or log.stalled


cdef int sink_ready(void* self) noexcept nogil:
    cdef Log* log = <Log*> self
    return log.broken == 0 and log.stalled == 0


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


# -- for Python ------------------------------------------------------------------------------------

cdef class WriterCore:
    def __cinit__(self, *args, **kw):
        self.log = log_new()
        if self.log == NULL:
            raise MemoryError
        self.shut = True
        self.pid = getpid()

    def __dealloc__(self):
        if self.log != NULL:
            log_free(self.log)

    def _attach(self, path, int folder, object last, *, bytes topic, int partition, bytes journal,
                str fsync, size_t block_bytes, int64_t segment_bytes, int64_t segment_age,
                bint stamps, ProducerTable producers):
        """Begin to write. folder: a descriptor, ours from now on. last: (descriptor, header, end,
        next, low, high, checkpoint there) of the segment to go on with, or the offset to begin a
        new one at. producers: whose messages are not stored twice; None: they are."""
        cdef Log* log = self.log
        cdef int rc
        log.folder = folder
        log.block_bytes = block_bytes
        log.segment_bytes = segment_bytes
        log.segment_age = segment_age
        log.stamped = stamps
        self.producers = producers
        if producers is not None:
            log.producers = &producers.all
        self.path = path
        self.fsync = fsync
        self.always = log.each = fsync == "always"
        self.partition = partition
        self.topic = topic.decode()
        if isinstance(last, int):
            memcpy(&log.segment.magic[0], b"MQJSEG\r\n", 8)
            log.segment.version = VERSION
            memcpy(&log.segment.journal[0], PyBytes_AS_STRING(journal), 16)
            log.segment.partition = partition
            log.segment.topic_size = <uint32_t> len(topic)
            memcpy(&log.segment.topic[0], PyBytes_AS_STRING(topic), len(topic))
            log.next = last
            rc = log_segment(log, last)
            if rc:
                raise write_error(rc, self.path)
        else:
            fd, header, log.pos, log.next, log.low, log.high, log.marked = last
            memcpy(&log.segment, PyBytes_AS_STRING(header), SEGMENT_HEADER)
            log.fd = os.dup(fd)
        log.written.store(log.next)
        log.durable.store(log.next)
        log.shown = openat(folder, "durable", O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        log_show(log)
        self.shut = False

    cdef Sink sink(self):
        cdef Sink s
        s.ops = &JOURNAL_SINK
        s.self = self.log
        return s

    def _mq_sink(self):
        """For a device: see mqcore/spi/sink.pxd."""
        if self.shut:
            raise JournalClosed(f"the writer of {self.path} is closed")
        self._same_process()
        self.own = self.sink()
        return PyCapsule_New(&self.own, "mqcore.sink", NULL)

    # -- appending --

    cdef int lock(self) except -1:
        if self.shut:
            raise JournalClosed(f"the writer of {self.path} is closed")
        if pthread_mutex_trylock(&self.log.lock) != 0:
            with nogil:
                pthread_mutex_lock(&self.log.lock)
        return 0

    cdef int make_room(self, size_t size) except -1:
        """With the lock, which is let go before anything is raised."""
        cdef int rc
        if self.pid != getpid():
            pthread_mutex_unlock(&self.log.lock)
            self._same_process()
        with nogil:
            rc = log_make_room(self.log, size)
        if rc:
            pthread_mutex_unlock(&self.log.lock)
            self._raise(rc, 0)
        return 0

    def _raise(self, int rc, int64_t taken):
        if rc == EMSGSIZE:
            raise MessageTooLarge("a message, its key or its headers exceed 2 GiB",
                                  hint="store it elsewhere and its place here")
        if rc == STAMP_OLD or rc == STAMP_USED:
            if self.always and taken:
                self._commit(self.log.next, taken)
            raise stamp_refused(2 if rc == STAMP_OLD else 3, taken)
        raise write_error(rc, self.path, taken=taken, broken=self.log.broken != 0)

    def append(self, value, *, key=None, time=None, headers=()) -> int:
        """Append one message; its offset.

        value, key: bytes-like. time: seconds since the epoch (None: now). headers: (name, value)
        pairs. With fsync="always" it is durable on return. Of a duplicate (deduplicate=True): the
        offset of the first, or -1, which is no longer known. Raises JournalWriteError: `taken`
        tells whether the message is kept (1: commit() tries again) or not (0).
        """
        cdef Log* log = self.log
        cdef int64_t offset, end, at = now_us() if time is None else round(time * 1e6)
        cdef Py_buffer view
        cdef const uint8_t* data
        cdef size_t size
        cdef bint held = not PyBytes_CheckExact(value)
        cdef int rc
        if held:
            get_buffer(value, &view)
            data = <const uint8_t*> view.buf
            size = view.len
        else:
            data = <const uint8_t*> PyBytes_AS_STRING(value)
            size = PyBytes_GET_SIZE(value)
        try:
            extras = None if key is None and not headers else self._extras(key, headers)
            self.lock()
            if log.filled + size + 12 > log.block_bytes or log.broken:
                self.make_room(size)
            rc = log_room(log, size)
            if rc == 0:
                memcpy(log_place(log), data, size)
                if extras is not None:
                    rc = put_extras(log, extras)
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
        if rc and rc != EEXIST:
            self._raise(rc, 0)
        if self.always:
            self._commit(end, 1)
        return offset

    def _extras(self, key, headers):
        """(key or None, [(name, value), ...]) as bytes."""
        if isinstance(key, str):
            raise UsageError("a key is bytes", hint="say key.encode()")
        return (None if key is None else bytes(key),
                [(name.encode(), bytes(value)) for name, value in headers])

    def append_many(self, messages, *, time=None) -> range:
        """Append a sequence of bytes-like messages; the offsets of those that are no duplicates.
        Errors as in append_batch."""
        cdef Log* log = self.log
        cdef int64_t first = 0, end = 0, n = 0, at = now_us() if time is None else round(time * 1e6)
        cdef const uint8_t* data
        cdef size_t size
        cdef int rc = 0
        self._same_process()
        checked = []
        for value in messages:
            checked.append(value if PyBytes_CheckExact(value) else as_bytes(value))
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
            rc = log_take(log, size, at)
            if rc and rc != EEXIST:
                break
            rc = 0
            n += 1
        end = log.next
        pthread_mutex_unlock(&log.lock)
        if rc:
            self._raise(rc, n)
        if self.always and n:
            self._commit(end, n)
        return range(first, end)

    def _flush_held(self):
        cdef int rc
        with nogil:
            rc = log_flush(self.log)
        return rc

    def _same_process(self):
        if self.pid != getpid():
            raise Forked(f"the writer of {self.path} belongs to the process that opened it",
                         hint="open the journal in the process that writes it")

    def append_batch(self, data, offsets=None, *, times=None, keys=None) -> range:
        """Append many messages from arrays; the offsets of those that are no duplicates.

        data: a Batch (anything with `data` and `offsets`), or bytes-like with offsets int[n + 1]:
        message i is data[offsets[i]:offsets[i+1]]. times: int64[n] microseconds since the epoch,
        or one number of seconds; None: now. keys: (data, offsets) likewise. From 64 KiB on, without
        keys and stamps, data is written from where it lies. Raises JournalWriteError, whose `taken`
        says how many of the messages are kept; those are not to be appended again.
        """
        import numpy
        cdef const uint8_t[::1] values, key_values
        cdef const int64_t[::1] ends, key_ends, when
        cdef int64_t now = now_us()
        cdef const int64_t* each = NULL
        cdef const uint8_t* at = NULL
        cdef const uint8_t* key_at = NULL
        cdef const int64_t* key_end_at = NULL
        cdef int64_t n, taken = 0, first = 0, end
        cdef int rc
        if offsets is None:
            data, offsets = data.data, data.offsets
        values, ends = columns_of(data, offsets)
        n = ends.shape[0] - 1
        if values.shape[0]:
            at = &values[0]
        if keys is not None:
            key_values, key_ends = columns_of(keys[0], keys[1])
            if key_ends.shape[0] != n + 1:
                raise UsageError(f"{key_ends.shape[0] - 1} keys for {n} messages")
            key_end_at = &key_ends[0]
            key_at = <const uint8_t*> key_end_at     # not NULL, though all keys may be empty
            if key_values.shape[0]:
                key_at = &key_values[0]
        if isinstance(times, (int, float)):
            now = round(times * 1e6)
        elif times is not None:
            when = numpy.ascontiguousarray(times, numpy.int64)
            if when.shape[0] != n:
                raise UsageError(f"{when.shape[0]} times for {n} messages")
            if n:
                each = &when[0]
        if n == 0:
            return range(self.next, self.next)
        self._same_process()
        self.lock()
        first = self.log.next
        with nogil:
            if keys_or_stamps(self.log, key_at) or ends[n] - ends[0] < DIRECT:
                rc = add_each(self.log, at, &ends[0], n, each, now, key_at, key_end_at,
                              &taken)
            else:
                rc = add_blocks(self.log, at, &ends[0], n, each, now, &taken)
            end = self.log.next
            pthread_mutex_unlock(&self.log.lock)
        if rc:
            self._raise(rc, taken)
        if self.always:
            self._commit(end, n)
        return range(first, end)

    def append_records(self, records):
        """Append what a reader gave, with its times, keys, headers and stamps; the offsets of what
        is no duplicate. Errors as in append_batch."""
        cdef Rows rows
        cdef int64_t first, end, taken = 0
        cdef int rc = 0
        columns = records._columns
        if {"key_ends", "header_ends", "producers"}.isdisjoint(columns):
            return self.append_batch(records.data, records.offsets, times=records.times)
        self._same_process()
        hold = rows_of(columns, &rows)
        rows.at = records._lo
        rows.end = records._hi
        self.lock()
        first = self.log.next
        with nogil:
            while rc == 0 and rows.at < rows.end:
                rc = add_row(self.log, &rows)
                rc = 0 if rc == EEXIST else rc
                rows.at += 1
                taken += rc == 0
            end = self.log.next
            pthread_mutex_unlock(&self.log.lock)
        del hold
        if rc:
            self._raise(rc, taken)
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
        if self.shut:
            raise JournalClosed(f"the writer of {self.path} is closed")
        self._commit(self.log.next, 0)
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

    def _tick(self, bint sync) -> int:
        """What the writer's thread does now and then; an errno."""
        cdef int rc
        if self.pid != getpid() or self.shut:
            return 0
        with nogil:
            pthread_mutex_lock(&self.log.lock)
            rc = log_tick(self.log)
            pthread_mutex_unlock(&self.log.lock)
            if rc == 0 and sync:
                rc = log_commit(self.log, self.log.written.load())
        return rc

    def _close(self) -> int:
        """Commit and end. An errno; then appended - durable messages are lost."""
        cdef int rc = 0
        if self.shut:
            return 0
        self.shut = True
        if self.pid == getpid():
            with nogil:
                rc = log_close(self.log)
        return rc

    def _detach(self):
        """Give the descriptors back; the numbers stay."""
        close_files(self.log)

    # -- to look at --

    @property
    def _pid(self) -> int:
        return self.pid

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

    @property
    def deduplicates(self) -> bool:
        return self.producers is not None

    @property
    def closed(self) -> bool:
        return self.shut

    @property
    def error(self):
        """What keeps the writer from writing; None: nothing. One that the next attempt may cure
        (disk full), or, after a failed fsync, one for good."""
        cdef int rc = self.log.broken or self.log.stalled
        return write_error(rc, self.path, broken=self.log.broken != 0) if rc else None

    def _remembered(self) -> tuple:
        """(next offset, the producers of all messages below it as rows)."""
        if pthread_mutex_trylock(&self.log.lock) != 0:
            with nogil:
                pthread_mutex_lock(&self.log.lock)
        try:
            return self.log.next, self.producers.dump()
        finally:
            pthread_mutex_unlock(&self.log.lock)

    def _counters(self) -> dict:
        return {"syncs": self.log.syncs, "rotations": self.log.rotations, "pos": self.log.pos,
                "waiting": self.log.count, "segment": self.log.segment.first}


# -- arrays ----------------------------------------------------------------------------------------

cdef inline bint keys_or_stamps(Log* log, const uint8_t* keys) noexcept nogil:
    return keys != NULL or log.stamped


cdef object columns_of(object data, object offsets):
    """(uint8[], int64[n + 1]), checked: offsets ascend within data."""
    import numpy
    cdef const int64_t[::1] ends
    cdef int64_t i
    cdef bint wrong
    if isinstance(data, str):
        raise UsageError("messages are bytes", hint="say text.encode()")
    values = numpy.frombuffer(data, numpy.uint8) if len(data) else numpy.empty(0, numpy.uint8)
    ends = numpy.ascontiguousarray(offsets, numpy.int64)
    if ends.shape[0] < 1:
        raise UsageError("offsets have no element", hint="n messages have n + 1 offsets")
    wrong = ends[0] < 0 or ends[ends.shape[0] - 1] > values.shape[0]
    for i in range(ends.shape[0] - 1):
        wrong |= ends[i + 1] < ends[i]
    if wrong:
        raise UsageError(f"offsets do not ascend within the {values.shape[0]} bytes of data")
    return values, ends


cdef int add_each(Log* log, const uint8_t* values, const int64_t* ends, int64_t n,
                  const int64_t* times, int64_t now, const uint8_t* keys, const int64_t* key_ends,
                  int64_t* taken) noexcept nogil:
    cdef int64_t i
    cdef size_t size
    cdef int rc
    for i in range(n):
        size = ends[i + 1] - ends[i]
        rc = log_room(log, size)
        if rc:
            return rc
        if size:
            memcpy(log_place(log), values + ends[i], size)
        if keys != NULL:
            rc = log_key(log, keys + key_ends[i], key_ends[i + 1] - key_ends[i])
            if rc:
                log_trim(log)
                return rc
        rc = log_take(log, size, now if times == NULL else times[i])
        if rc and rc != EEXIST:
            return rc
        taken[0] += 1
    return 0


cdef int add_blocks(Log* log, const uint8_t* values, const int64_t* ends, int64_t n,
                    const int64_t* times, int64_t now, int64_t* taken) noexcept nogil:
    """A block after the other, each as many messages as fit; one alone if it is larger."""
    cdef size_t most = log.block_bytes // 12 + 2
    cdef int32_t* rebased = <int32_t*> malloc(4 * (most + 1))
    cdef int64_t i = 0, k, base
    cdef int rc = 0
    if rebased == NULL:
        return ENOMEM
    while i < n and rc == 0:
        base = ends[i]
        k = 0
        rebased[0] = 0
        while i + k < n and (k == 0 or ends[i + k + 1] - base + 12 * (k + 1)
                             <= <int64_t> log.block_bytes):
            if ends[i + k + 1] - base > VALUE_MAX - 64:
                rc = EMSGSIZE
                break
            k += 1
            rebased[k] = <int32_t> (ends[i + k] - base)
        if rc == 0:
            rc = log_direct(log, values + base, rebased, times, <uint32_t> k, now)
        if rc == 0:
            i += k
            if times != NULL:
                times += k
            taken[0] = i
    free(rebased)
    return rc


# -- records of a reader ---------------------------------------------------------------------------

cdef struct Rows:             # columns of a block; NULL: it has none
    int64_t at
    int64_t end
    const int64_t* times
    const int32_t* ends
    const uint8_t* values
    const int32_t* key_ends
    const uint8_t* key_valid
    const uint8_t* keys
    const int32_t* header_ends
    const int32_t* name_ends
    const uint8_t* names
    const int32_t* datum_ends
    const uint8_t* data
    const uint64_t* producers
    const uint64_t* sequences
    const int64_t* sent


cdef list rows_of(dict columns, Rows* rows):
    """Fills rows; what is returned keeps its pointers valid."""
    import numpy
    cdef const void** places[14]
    cdef int i
    cdef size_t address
    hold = []
    places[0] = <const void**> &rows.times
    for i in range(14):
        places[i] = places[0] + i
    for i, name in enumerate(("times", "value_ends", "values", "key_ends", "key_valid", "keys",
                              "header_ends", "name_ends", "names", "datum_ends", "data",
                              "producers", "sequences", "sent")):
        column = columns.get(name)
        if column is None:
            places[i][0] = NULL
        else:
            hold.append(numpy.ascontiguousarray(column))
            address = hold[len(hold) - 1].ctypes.data
            places[i][0] = <const void*> address
    return hold


cdef int add_row(Log* log, Rows* r) noexcept nogil:
    """With the lock; 0 or an errno, and then it has not been taken."""
    cdef int64_t i = r.at
    cdef int32_t k
    cdef size_t size = r.ends[i + 1] - r.ends[i]
    cdef int rc = 0
    rc = log_room(log, size)
    if rc:
        return rc
    if size:
        memcpy(log_place(log), r.values + r.ends[i], size)
    if r.key_ends != NULL and r.key_valid[i // 8] >> (i % 8) & 1:
        rc = log_key(log, r.keys + r.key_ends[i], r.key_ends[i + 1] - r.key_ends[i])
    if rc == 0 and r.header_ends != NULL and r.header_ends[i + 1] > r.header_ends[i]:
        for k in range(r.header_ends[i], r.header_ends[i + 1]):
            if rc == 0:
                rc = log_header(log, r.names + r.name_ends[k], r.name_ends[k + 1] - r.name_ends[k],
                                r.data + r.datum_ends[k], r.datum_ends[k + 1] - r.datum_ends[k])
        if rc == 0:
            rc = log_headers_end(log)
    if rc == 0 and r.producers != NULL:
        rc = log_stamp(log, r.producers[i], r.sequences[i], r.sent[i])
    if rc:
        log_trim(log)
        return rc
    return log_take(log, size, r.times[i])


# -- small things ----------------------------------------------------------------------------------

cdef int get_buffer(object value, Py_buffer* view) except -1:
    if isinstance(value, str):
        raise UsageError("a message is bytes", hint="say text.encode()")
    PyObject_GetBuffer(value, view, PyBUF_SIMPLE)
    return 0


cdef bytes as_bytes(object value):
    if isinstance(value, (str, int)):
        raise UsageError(f"a message is bytes, not {type(value).__name__}")
    return bytes(value)


cdef int put_extras(Log* log, tuple extras) except? 5:
    cdef int rc = 0
    key, headers = extras
    if key is not None:
        rc = log_key(log, <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    if rc == 0 and headers:
        for name, value in headers:
            if rc == 0:
                rc = log_header(
                    log, <const uint8_t*> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name),
                    <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        if rc == 0:
            rc = log_headers_end(log)
    return rc


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
