"""A context of a socket: a line of requests, surveys or subscriptions of its own over the same
peers (PatternOps.context), as Python holds it."""

from libc.stdint cimport uint32_t
from libcpp.atomic cimport atomic

from mqcore.binding.core cimport SocketCore

cdef class ContextCore:
    cdef readonly SocketCore core
    cdef atomic[uint32_t] number      # 0: closed

    cdef uint32_t check(self) except 0        # the number
    cdef object received(self, uint32_t number, int kind, bint answer)
