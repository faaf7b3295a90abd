"""WritersCore: see many.pxd. A topic's first message opens its partitions, with the GIL; then its
logs are in the table, and nothing of Python is on the way of a message any more."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_New
from libc.errno cimport EIO
from libc.stdlib cimport calloc, free

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_MORE, MSG_ROUTING_ID, MsgVec, msg_close, msg_data, msg_size,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_INVALID, MQ_OK
from mqcore.journal.store.core cimport WriterCore, status_of, store
from mqcore.journal.store.includes cimport (
    crc32c, monotonic_cond_init, pthread_cond_destroy, pthread_cond_signal, pthread_cond_timedwait,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from mqcore.journal.store.log cimport (
    DUPLICATE, QUIET, log_commit, log_error, now_us, stamp_key, stamp_size,
)
from mqcore.spi.sink cimport SINK_ABI, SINK_TOPIC, SinkOps
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

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


# -- borrowing -------------------------------------------------------------------------------------

cdef Partition* borrow(Many* many, const uint8_t* name, size_t size, uint32_t number,
                       bint leaving=False) noexcept nogil:
    """NULL: it is closed. Else it stays open until give_back(). leaving: also if it is about to be
    closed, which waits; and who looks at all of them does not make one of them used."""
    cdef Topic* topic
    cdef Partition* one = NULL
    pthread_mutex_lock(&many.lock)
    topic = place_of(many, name, size)
    if topic.name != NULL:
        one = &topic.partitions[number]
        if one.log == NULL or one.leaving and not leaving:
            one = NULL
        else:
            one.users += 1
            if not leaving:
                many.clock += 1
                one.used = many.clock
    pthread_mutex_unlock(&many.lock)
    return one


cdef Partition* borrow_at(Many* many, size_t i) noexcept nogil:
    """The i-th of those that are open, leaving or not; NULL: it was closed."""
    cdef Partition* one
    pthread_mutex_lock(&many.lock)
    one = many.open[i]
    if one != NULL:
        one.users += 1
    pthread_mutex_unlock(&many.lock)
    return one


cdef void give_back(Many* many, Partition* one) noexcept nogil:
    pthread_mutex_lock(&many.lock)
    one.users -= 1
    if one.users == 0:
        pthread_cond_signal(&many.unused)
    pthread_mutex_unlock(&many.lock)


cdef Partition* idle_longest(Many* many, bint* busy) noexcept nogil:
    """With the lock. busy: one that is in use now may be idle soon."""
    cdef Partition* found = NULL
    cdef Partition* one
    cdef size_t i
    busy[0] = False
    for i in range(many.n_open):
        one = many.open[i]
        if one == NULL or one.kept or one.leaving or given_up(one.log):
            continue
        if one.users:
            busy[0] = True
        elif found == NULL or one.used < found.used:
            found = one
    return found


cdef size_t count_of(Many* many) noexcept nogil:
    cdef size_t n
    pthread_mutex_lock(&many.lock)
    n = many.n_open
    pthread_mutex_unlock(&many.lock)
    return n


cdef size_t open_now(Many* many) noexcept nogil:
    cdef size_t i, n = 0
    pthread_mutex_lock(&many.lock)
    for i in range(many.n_open):
        n += many.open[i] != NULL
    pthread_mutex_unlock(&many.lock)
    return n


cdef int open_partition(Many* many, const uint8_t* name, size_t size, uint32_t number,
                        Partition** one) noexcept with gil:
    """The first message of a topic, or the first one after the partition was closed: a Status. It
    is borrowed."""
    cdef WritersCore core = <WritersCore> many.owner
    try:
        if core._refused(name[:size], number):
            return MQ_INVALID
        core._open(name[:size], number)         # which borrows it
        pthread_mutex_lock(&many.lock)
        one[0] = &place_of(many, name, size).partitions[number]
        pthread_mutex_unlock(&many.lock)
        return MQ_OK
    except OptionError:
        return MQ_INVALID     # no topic can be called that, or there are too many
    except Exception as error:
        if many_error(many):
            return MQ_FULL          # a full disk stops them all: this message waits with the others
        if not isinstance(error, JournalClosed) and (
                open_now(many) or getattr(error, "errno", None) not in EVERYWHERE):
            core._refuse(name[:size], number, error)
            return MQ_INVALID       # this one cannot be written; the open ones go on
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
    cdef size_t front = 0, key
    cdef uint8_t* at
    if many.partitions == 1 or n == 0:
        return 0
    at = msg_data(&parts[0])
    if many.stamped:
        front = stamp_size(at, msg_size(&parts[0]))
    if front:
        key = stamp_key(at)
        return crc32c(0, at + (front if key else 8), key or 8) % many.partitions
    return parts[0].peer % many.partitions


cdef bint given_up(Log* log) noexcept nogil:
    """For good: after a failed sync, or since another writer was promoted, say. The others of its
    disk may be well."""
    return log.barred != 0 and log.barred != QUIET


cdef int many_error(void* self) noexcept nogil:
    """What stops them all: a full disk, or each of them has given up."""
    cdef Many* many = <Many*> self
    cdef Partition* one
    cdef size_t i, n = 0, lost = 0
    cdef int rc = 0, stalled = 0
    pthread_mutex_lock(&many.lock)
    for i in range(many.n_open):
        one = many.open[i]
        if one == NULL:
            continue
        n += 1
        if given_up(one.log):
            rc = log_error(one.log)
            lost += 1
        elif one.log.stalled:
            stalled = one.log.stalled
    pthread_mutex_unlock(&many.lock)
    return stalled or (rc if lost == n and rc else many.problem)


cdef const uint8_t* topic_in(Many* many, Msg* parts, size_t n, size_t* at,
                             size_t* size) noexcept nogil:
    """*at: where the rest of the message begins. NULL: it has no topic."""
    cdef size_t i = 0
    while i < n and parts[i].flags & (MSG_ENVELOPE | MSG_ROUTING_ID) \
            and not parts[i].flags & MSG_GROUP:
        i += 1                # the remaining ones are not part of the message
    at[0] = i + (many.first_part or i < n and parts[i].flags & MSG_GROUP != 0)
    if not many.first_part:
        size[0] = many.only.size
        return many.only.name
    if i == n or msg_size(&parts[i]) > SINK_TOPIC:
        return NULL
    size[0] = msg_size(&parts[i])
    return msg_data(&parts[i])


cdef const uint8_t* many_topic(void* self, Msg* parts, size_t n, size_t* size) noexcept nogil:
    cdef size_t at = 0
    return topic_in(<Many*> self, parts, n, &at, size)


cdef int many_place(void* self, Msg* parts, size_t n, int64_t* offset,
                    uint32_t* partition) noexcept nogil:
    cdef Many* many = <Many*> self
    cdef Partition* one
    cdef const uint8_t* name
    cdef size_t at = 0, i, size = 0
    cdef int rc
    name = topic_in(many, parts, n, &at, &size)
    if name == NULL:
        return MQ_INVALID
    partition[0] = partition_in(many, parts + at, n - at)
    one = borrow(many, name, size, partition[0])
    if one == NULL:
        rc = open_partition(many, name, size, partition[0], &one)
        if rc:
            return rc
    rc = place_in(many, one.log, parts + at, n - at, offset)
    give_back(many, one)
    if rc == MQ_OK or rc == MQ_DROPPED:
        for i in range(at):
            msg_close(&parts[i])
    return rc


cdef int place_in(Many* many, Log* log, Msg* parts, size_t n, int64_t* offset) noexcept nogil:
    cdef int rc
    pthread_mutex_lock(&log.lock)
    rc = store(log, parts, n, now_us(), offset)
    pthread_mutex_unlock(&log.lock)
    if rc and rc != DUPLICATE and given_up(log) and many_error(many) == 0:
        return MQ_INVALID     # this partition takes nothing more; the others go on
    return status_of(rc)


cdef int many_commit(void* self) noexcept nogil:
    """Those that were closed meanwhile are durable."""
    cdef Many* many = <Many*> self
    cdef Partition* one
    cdef size_t i
    cdef int rc, first = 0
    for i in range(count_of(many)):
        one = borrow_at(many, i)
        if one != NULL:
            rc = log_commit(one.log, one.log.next)
            first = first or rc
            give_back(many, one)
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
MANY_SINK.topic = many_topic


# -- for Python ------------------------------------------------------------------------------------

cdef class WritersCore:
    def __cinit__(self, *args, **kw):
        pthread_mutex_init(&self.many.lock, NULL)
        monotonic_cond_init(&self.many.unused)
        self.many.owner = <void*> self
        self.kept = {}
        self.refusals = {}

    def __dealloc__(self):
        cdef size_t i
        if self.many.table != NULL:
            for i in range(self.many.mask + 1):
                free(self.many.table[i].partitions)
        free(self.many.table)
        free(self.many.open)
        pthread_cond_destroy(&self.many.unused)
        pthread_mutex_destroy(&self.many.lock)

    def _begin(self, uint32_t partitions, size_t topics, size_t most, *, bint first_part,
               bint stamped, bint each):
        """most: partitions that are open at once."""
        cdef size_t places = 4
        while places < 2 * topics:
            places *= 2
        self.many.table = <Topic*> calloc(places, sizeof(Topic))
        self.many.open = <Partition**> calloc(most, sizeof(void*))
        if self.many.table == NULL or self.many.open == NULL:
            raise MemoryError
        self.many.mask = places - 1
        self.many.most = most
        self.many.partitions = partitions
        self.many.first_part = first_part
        self.many.stamped = stamped
        self.many.each = each

    cdef Topic* named(self, bytes name) except NULL:
        """Its place in the table, made if there is none. With the GIL, and one thread at a time
        makes one."""
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(name)
        cdef size_t size = PyBytes_GET_SIZE(name)
        cdef Partition* partitions
        cdef Topic* topic
        cdef uint32_t i
        pthread_mutex_lock(&self.many.lock)
        topic = place_of(&self.many, at, size)
        pthread_mutex_unlock(&self.many.lock)
        if topic.name != NULL:
            return topic
        partitions = <Partition*> calloc(self.many.partitions, sizeof(Partition))
        if partitions == NULL:
            raise MemoryError
        for i in range(self.many.partitions):
            partitions[i].topic = topic
            partitions[i].number = i
        self.kept[name] = name
        pthread_mutex_lock(&self.many.lock)
        topic.size = size
        topic.partitions = partitions
        topic.name = at
        pthread_mutex_unlock(&self.many.lock)
        if not self.many.first_part:
            self.many.only = topic
        return topic

    # Except for _borrow and _give_back, callers of the methods below hold the lock of opening.

    def _take_in(self, bytes name, WriterCore writer):
        """Messages find it from now on."""
        cdef Many* many = &self.many
        cdef Topic* topic = self.named(name)
        cdef Partition* one = &topic.partitions[writer.partition]
        cdef size_t i = 0
        pthread_mutex_lock(&many.lock)
        while many.open[i] != NULL:     # _room() has said that there is one
            i += 1
        many.open[i] = one
        many.n_open = max(many.n_open, i + 1)
        one.log = writer.log
        one.leaving = False
        many.clock += 1
        one.used = many.clock
        pthread_mutex_unlock(&many.lock)

    def _room(self) -> int:
        """How many more may be open."""
        return self.many.most - open_now(&self.many)

    def _borrow(self, bytes name, uint32_t number, *, bint leaving=False) -> bool:
        """Whether it is open; then it stays so until _give_back(). leaving: one that is about to be
        closed is open, too."""
        return borrow(&self.many, <const uint8_t*> PyBytes_AS_STRING(name),
                      PyBytes_GET_SIZE(name), number, leaving) != NULL

    def _give_back(self, bytes name, uint32_t number):
        give_back(&self.many, &self.named(name).partitions[number])

    def _retire(self, double patience) -> tuple | None:
        """(topic, partition) of the one that has been idle for the longest time: no call borrows it
        until _remove() or _restore(). If each is in use, wait `patience` seconds for one.
        None: each of them is kept, or has failed, or is in use still."""
        cdef Many* many = &self.many
        cdef Partition* found
        cdef bint busy = False
        cdef timespec until
        clock_gettime(CLOCK_MONOTONIC, &until)
        until.tv_sec += <int64_t> patience
        with nogil:
            pthread_mutex_lock(&many.lock)
            found = idle_longest(many, &busy)
            while found == NULL and busy and pthread_cond_timedwait(
                    &many.unused, &many.lock, &until) == 0:
                found = idle_longest(many, &busy)
            if found != NULL:
                found.leaving = True
            pthread_mutex_unlock(&many.lock)
        if found == NULL:
            return None
        return found.topic.name[:found.topic.size], found.number

    def _keep(self, bytes name, uint32_t number):
        """One that is borrowed stays open for good."""
        self.named(name).partitions[number].kept = True

    def _restore(self, bytes name, uint32_t number):
        """It is not closed after all, and the next to go is another one."""
        cdef Partition* one = &self.named(name).partitions[number]
        pthread_mutex_lock(&self.many.lock)
        one.leaving = False
        self.many.clock += 1
        one.used = self.many.clock
        pthread_mutex_unlock(&self.many.lock)

    def _restore_all(self):
        """Where an exception of a signal handler has come between _retire() and what follows it."""
        cdef size_t i
        pthread_mutex_lock(&self.many.lock)
        for i in range(self.many.n_open):
            if self.many.open[i] != NULL:
                self.many.open[i].leaving = False
        pthread_mutex_unlock(&self.many.lock)

    def _remove(self, bytes name, uint32_t number, double patience) -> bool:
        """When no call is in it any more: its writer may be closed. False: one was for `patience`
        seconds, such as a commit that a signal handler has interrupted."""
        cdef Many* many = &self.many
        cdef Partition* one = &self.named(name).partitions[number]
        cdef size_t i
        cdef bint left
        cdef timespec until
        clock_gettime(CLOCK_MONOTONIC, &until)
        until.tv_sec += <int64_t> patience
        with nogil:
            pthread_mutex_lock(&many.lock)
            while one.users and pthread_cond_timedwait(&many.unused, &many.lock, &until) == 0:
                pass
            left = one.users == 0
            if left:
                for i in range(many.n_open):
                    if many.open[i] == one:
                        many.open[i] = NULL
                one.log = NULL
                one.leaving = False
            pthread_mutex_unlock(&many.lock)
        return left

    def __exit__(self, *_):
        """As that of a writer, in core.pyx."""
        try:
            self.close()
        except BaseException:
            self.close()
            raise

    def _refuse(self, bytes name, uint32_t number, error):
        """One that cannot be opened: its messages are refused, and counted, for a while."""
        one = name, number
        if one not in self.refusals or len(self.refusals) >= 1000:
            _log.error("messages of the topic %r, partition %d, are refused: %s", name, number,
                       error)
        if len(self.refusals) >= 1000:
            self.refusals.clear()
        self.refusals[one] = time.monotonic() + AGAIN

    def _refused(self, bytes name, uint32_t number) -> bool:
        return time.monotonic() < self.refusals.get((name, number), 0)

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
