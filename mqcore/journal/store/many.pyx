"""WritersCore: see many.pxd. A topic's first message opens its partitions, with the GIL; then its
logs are in the table, and nothing of Python is on the way of a message any more."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_New
from libc.errno cimport EIO
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_MORE, MSG_ROUTING_ID, MsgVec, msg_close, msg_data, msg_size,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_INVALID, MQ_OK
from mqcore.journal.store.block cimport STAMP
from mqcore.journal.store.core cimport WriterCore, status_of, store
from mqcore.journal.store.includes cimport (
    crc32c, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from mqcore.journal.store.log cimport DUPLICATE, QUIET, log_commit, log_error, now_us, stamp_key
from mqcore.spi.sink cimport SINK_ABI, SinkOps

import errno
import logging
import time

from mqcore.errors import OptionError
from mqcore.journal.errors import JournalClosed

# what keeps every topic from being written, if it happens to the first one
EVERYWHERE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE,
              errno.ENFILE, errno.ENOMEM}
AGAIN = 1.0             # seconds until a topic that could not be opened is tried again
_log = logging.getLogger("mqcore.journal")


# -- the table -------------------------------------------------------------------------------------

cdef Topic* place_of(Many* many, const uint8_t* name, size_t size) noexcept nogil:
    """Where the topic is, or would be. With the lock. There is always a free place."""
    cdef size_t i = crc32c(0, name, size) & many.mask
    cdef Topic* topic = &many.table[i]
    while topic.name != NULL and (topic.size != size or memcmp(topic.name, name, size) != 0):
        i = (i + 1) & many.mask
        topic = &many.table[i]
    return topic


cdef Topic* find(Many* many, const uint8_t* name, size_t size) noexcept nogil:
    """NULL: there is none. What is returned stays as it is."""
    cdef Topic* topic
    pthread_mutex_lock(&many.lock)
    topic = place_of(many, name, size)
    if topic.name == NULL:      # the free place may be another topic's as soon as the lock is free
        topic = NULL
    pthread_mutex_unlock(&many.lock)
    return topic


cdef size_t count_of(Many* many) noexcept nogil:
    cdef size_t n
    pthread_mutex_lock(&many.lock)
    n = many.n_all
    pthread_mutex_unlock(&many.lock)
    return n


cdef int open_topic(Many* many, const uint8_t* name, size_t size) noexcept with gil:
    """The first message of a topic: a Status."""
    cdef WritersCore core = <WritersCore> many.owner
    try:
        if core._refused(name[:size]):
            return MQ_INVALID
        core._open(name[:size])
        return MQ_OK
    except OptionError:
        return MQ_INVALID     # no topic can be called that, or there are too many
    except Exception as error:
        if not isinstance(error, JournalClosed) and (
                count_of(many) or getattr(error, "errno", None) not in EVERYWHERE):
            core._refuse(name[:size], error)
            return MQ_INVALID       # this topic cannot be written; the open ones go on
        core.failed(error)
        many.problem = getattr(error, "errno", None) or EIO
        return MQ_FULL
    except BaseException as error:
        core.failed(error)
        many.problem = EIO
        return MQ_FULL


# -- the sink --------------------------------------------------------------------------------------

cdef uint32_t partition_in(Many* many, Msg* parts, size_t n) noexcept nogil:
    """By the key in the stamp, else by the producer in it, else by the connection."""
    cdef int64_t key = -1
    cdef uint8_t* at
    if many.partitions == 1 or n == 0:
        return 0
    at = msg_data(&parts[0])
    if many.stamped:
        key = stamp_key(at, msg_size(&parts[0]))
    if key > 0:
        return crc32c(0, at + STAMP, key) % many.partitions
    if key == 0:
        return crc32c(0, at + 8, 8) % many.partitions
    return parts[0].peer % many.partitions


cdef bint given_up(Log* log) noexcept nogil:
    """For good: after a failed sync, or since another writer was promoted, say. The others of its
    disk may be well."""
    return log.barred != 0 and log.barred != QUIET


cdef int many_error(void* self) noexcept nogil:
    """What stops them all: a full disk, or each of them has given up."""
    cdef Many* many = <Many*> self
    cdef size_t i, n = count_of(many), lost = 0
    cdef int rc = 0
    for i in range(n):
        if given_up(many.all[i]):
            rc = log_error(many.all[i])
            lost += 1
        elif many.all[i].stalled:
            return many.all[i].stalled
    return rc if lost == n and rc else many.problem


cdef int many_place(void* self, Msg* parts, size_t n, int64_t* offset,
                    uint32_t* partition) noexcept nogil:
    cdef Many* many = <Many*> self
    cdef Topic* topic = many.only
    cdef Log* log
    cdef size_t at = 0, i
    cdef int rc
    while at < n and parts[at].flags & (MSG_ENVELOPE | MSG_ROUTING_ID) \
            and not parts[at].flags & MSG_GROUP:
        at += 1               # the remaining ones are not part of the message
    if many.first_part:
        if at == n:
            return MQ_INVALID
        topic = find(many, msg_data(&parts[at]), msg_size(&parts[at]))
        if topic == NULL:
            rc = open_topic(many, msg_data(&parts[at]), msg_size(&parts[at]))
            if rc:
                return rc
            topic = find(many, msg_data(&parts[at]), msg_size(&parts[at]))
        at += 1
    elif at < n and parts[at].flags & MSG_GROUP:
        at += 1
    partition[0] = partition_in(many, parts + at, n - at)
    log = topic.logs[partition[0]]
    pthread_mutex_lock(&log.lock)
    rc = store(log, parts + at, n - at, now_us(), offset)
    pthread_mutex_unlock(&log.lock)
    if rc == 0 or rc == DUPLICATE:
        for i in range(at):
            msg_close(&parts[i])
    elif given_up(log) and many_error(many) == 0:
        return MQ_INVALID     # this partition takes nothing more; the others go on
    return status_of(rc)


cdef int many_commit(void* self) noexcept nogil:
    cdef Many* many = <Many*> self
    cdef size_t i
    cdef int rc, first = 0
    for i in range(count_of(many)):
        rc = log_commit(many.all[i], many.all[i].next)
        first = first or rc
    return first


cdef int many_take(void* self, MsgVec* v, size_t start, size_t* done) noexcept nogil:
    cdef Many* many = <Many*> self
    cdef size_t at = start, end
    cdef int64_t offset = 0
    cdef uint32_t partition = 0
    cdef int rc = MQ_OK
    while at < v.n and rc == MQ_OK:
        end = at + 1
        while end < v.n and v.at[end - 1].flags & MSG_MORE:
            end += 1
        rc = many_place(self, v.at + at, end - at, &offset, &partition)
        if rc == MQ_OK or rc == MQ_DROPPED:
            at = end
    done[0] = at
    if many.each and at > start:
        many_commit(self)               # what fails here is seen by error() and ready()
    return rc


cdef int many_ready(void* self) noexcept nogil:
    return many_error(self) == 0


cdef SinkOps MANY_SINK
MANY_SINK.abi = SINK_ABI
MANY_SINK.take = many_take
MANY_SINK.ready = many_ready
MANY_SINK.durable = NULL
MANY_SINK.place = many_place
MANY_SINK.commit = many_commit
MANY_SINK.error = many_error


# -- for Python ------------------------------------------------------------------------------------

cdef class WritersCore:
    def __cinit__(self, *args, **kw):
        pthread_mutex_init(&self.many.lock, NULL)
        self.many.owner = <void*> self
        self.kept = []
        self.refusals = {}

    def __dealloc__(self):
        cdef size_t i
        if self.many.table != NULL:
            for i in range(self.many.mask + 1):
                free(self.many.table[i].logs)
        free(self.many.table)
        free(self.many.all)
        pthread_mutex_destroy(&self.many.lock)

    def _begin(self, uint32_t partitions, size_t most, *, bint first_part, bint stamped, bint each):
        cdef size_t places = 4
        while places < 2 * most:
            places *= 2
        self.many.table = <Topic*> calloc(places, sizeof(Topic))
        self.many.all = <Log**> calloc(most * partitions, sizeof(void*))
        if self.many.table == NULL or self.many.all == NULL:
            raise MemoryError
        self.many.mask = places - 1
        self.many.partitions = partitions
        self.many.first_part = first_part
        self.many.stamped = stamped
        self.many.each = each

    cdef int take_in(self, bytes name, list writers) except -1:
        cdef Log** logs = <Log**> calloc(len(writers), sizeof(void*))
        cdef Topic* topic
        cdef WriterCore writer
        cdef size_t i
        if logs == NULL:
            raise MemoryError
        self.kept.append((name, writers))
        for i in range(<size_t> len(writers)):
            writer = writers[i]
            logs[i] = writer.log
        pthread_mutex_lock(&self.many.lock)
        topic = place_of(&self.many, <const uint8_t*> PyBytes_AS_STRING(name),
                         PyBytes_GET_SIZE(name))
        topic.size = PyBytes_GET_SIZE(name)
        topic.logs = logs
        topic.name = <const uint8_t*> PyBytes_AS_STRING(name)
        for i in range(<size_t> len(writers)):
            self.many.all[self.many.n_all + i] = logs[i]
        self.many.n_all += len(writers)
        pthread_mutex_unlock(&self.many.lock)
        if not self.many.first_part:
            self.many.only = topic
        return 0

    def _take_in(self, bytes name, list writers):
        """The writers of a topic's partitions; messages find them from now on."""
        self.take_in(name, writers)

    def _refuse(self, bytes name, error):
        """A topic that cannot be opened: its messages are refused, and counted, for a while."""
        if name not in self.refusals or len(self.refusals) >= 1000:
            _log.error("messages of the topic %r are refused: %s", name, error)
        if len(self.refusals) >= 1000:
            self.refusals.clear()
        self.refusals[name] = time.monotonic() + AGAIN

    def _refused(self, bytes name) -> bool:
        return time.monotonic() < self.refusals.get(name, 0)

    @property
    def failure(self):
        """Why a topic could not be opened, or None."""
        with cython.critical_section(self):
            return self.why

    cdef void failed(self, object error) noexcept:
        with cython.critical_section(self):
            self.why = error

    def _mq_sink(self):
        """For a device: see mqcore/spi/sink.pxd. A new one tries again what the last one ended
        with."""
        self.many.problem = 0
        self.failed(None)
        self.own.ops = &MANY_SINK
        self.own.self = &self.many
        return PyCapsule_New(&self.own, "mqcore.sink", NULL)
