"""Buffers sent by reference."""

from mqcore.binding.handle cimport SocketHandle


cdef class Pin:               # lives as long as the data plane needs the buffer
    cdef object view
    cdef list token


cdef class Pinned:
    cdef list token
    cdef SocketHandle core

cdef tuple pinned_new(SocketHandle core, object data)     # (Pinned, Pin)
