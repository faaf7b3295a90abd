"""What the reactor's test drivers share."""

from libc.stdint cimport uint64_t
from libcpp.atomic cimport atomic

cdef enum:
    MANY = 16                 # native threads at most
    LIMIT_NS = 10000000000    # nothing here takes so long unless it is lost

cdef bint reaches(atomic[uint64_t]* word, uint64_t value) noexcept nogil   # False: not in time
