"""What the reactor's test drivers share."""

from libc.stdint cimport uint64_t
from libcpp.atomic cimport atomic

from mqcore.reactor.poller cimport PollerOps

cdef enum:
    MANY = 16                 # native threads at most
    LIMIT_NS = 10000000000    # nothing here takes so long unless it is lost

cdef const PollerOps* bench_ops(str name) except NULL
cdef bint reaches(atomic[uint64_t]* word, uint64_t value) noexcept nogil   # False: not in time
