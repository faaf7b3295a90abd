"""The writer for Python, and as a sink for message handles."""

from libc.stdint cimport int64_t, uint8_t

from mqcore.base.message cimport Msg
from mqcore.journal.store.log cimport Log
from mqcore.journal.store.producers cimport ProducerTable
from mqcore.spi.sink cimport Sink

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
cdef int status_of(int rc) noexcept nogil           # of what store() returned
