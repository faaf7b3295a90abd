"""The writer for Python, and as a sink for message handles."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_ROUTING_ID, Msg, msg_data, msg_size,
)
from mqcore.journal.store.log cimport Log, stamp_size
from mqcore.journal.store.producers cimport ProducerTable
from mqcore.spi.sink cimport Sink

cdef enum:
    # parts that say where a message came from or goes to, and are not stored
    HIDDEN = <int> MSG_ENVELOPE | <int> MSG_ROUTING_ID | <int> MSG_GROUP

cdef class WriterCore:
    cdef Log* log
    cdef readonly object path
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly str fsync
    cdef ProducerTable producers        # what log.producers points into
    cdef object codec                   # what log.codec points to; None
    cdef bint always
    cdef bint shut
    cdef int ended_with       # the errno of close()
    cdef int born             # how many forks there had been: a child has one more
    cdef int pid
    cdef Sink own             # what _mq_sink() points to

    # What a device calls without the GIL. The writer must outlive it.
    cdef Sink sink(self)
    cdef int call_it(self, bytes topic) except -1
    cdef int compress(self, str name) except -1
    cdef int make_room(self, size_t size) except -1
    cdef int lock(self) except -1
    cdef add_columns(self, const uint8_t[::1] values, const int64_t[::1] ends, times, int64_t now,
                     keys)
    cdef add_records(self, records, offsets)


# With log.lock: one message out of its parts, which are closed on 0 and DUPLICATE. Routing parts
# are left out. 0, an errno or a Refusal.
cdef int store(Log* log, Msg* parts, size_t n, int64_t now, int64_t* offset) noexcept nogil

cdef inline bint begins_with_stamp(Msg* parts, size_t n) noexcept nogil:
    """In the first part that is stored: what others begin with is none."""
    cdef size_t i
    for i in range(n):
        if not parts[i].flags & HIDDEN:
            return stamp_size(msg_data(&parts[i]), msg_size(&parts[i])) > 0
    return False

cdef int status_of(int rc) noexcept nogil           # of what store() returned
