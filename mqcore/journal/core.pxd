"""The writer for Python, and as a sink for whoever has message handles."""

from mqcore.journal.log cimport Log
from mqcore.spi.sink cimport Sink

cdef class WriterCore:
    cdef Log* log
    cdef readonly object path
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly str fsync
    cdef bint always
    cdef bint shut
    cdef int pid

    # What a device calls without the GIL. The writer must outlive it.
    cdef Sink sink(self)
    cdef int make_room(self, size_t size) except -1
    cdef int lock(self) except -1
