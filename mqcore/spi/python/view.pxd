"""Peers and messages as a pattern in Python sees them: handles on what belongs to the socket."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe

cdef class Peer:
    cdef Pipe* pipe           # NULL: detached
    cdef Pattern* owner
    cdef readonly uint32_t id
    cdef readonly bytes routing_id
    cdef readonly int prio
    cdef readonly bint connected
    cdef readonly bint gone
    cdef public object data

cdef class Parts:
    cdef Msg* run             # one after the other, or
    cdef Msg** each           # wherever they lie
    cdef size_t n             # 0: the call that they were shown to has ended
    cdef void* owner          # whose call that is
    cdef Msg* part(self, Py_ssize_t i) except NULL
