"""SocketInternals: a socket for mqcore/api and mqcore/control."""

from mqcore.binding.handle cimport SocketHandle


cdef class SocketInternals(SocketHandle):
    pass
