"""SocketCore: sending and receiving for Python, the base class of mqcore.Socket."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.sock.handle cimport SocketHandle


cdef class SocketCore(SocketHandle):
    @cython.final
    cdef MsgVec* take_vec(self) except NULL

    @cython.final
    cdef void give_vec(self, MsgVec* v) noexcept

    @cython.final
    cdef int attempt(self, Msg* parts, size_t n, uint32_t peer) except -1

    @cython.final
    cdef int push(self, Msg* parts, size_t n, object timeout) except -1

    @cython.final
    cdef int push_late(self, Msg* parts, size_t n, int rc, uint32_t seen, object timeout) except -1

    @cython.final
    cdef int push_vec(self, MsgVec* v, int64_t deadline, object timeout, size_t* count) except -1

    @cython.final
    cdef int _gather(self, MsgVec* v, object data, bint* pinned) except -1

    @cython.final
    cdef int _group(self, Msg* m, bytes group) except -1

    @cython.final
    cdef int pull(self, MsgVec* v, object timeout) except -1

    @cython.final
    cdef int pull_late(self, MsgVec* v, int rc, uint32_t seen, object timeout) except -1

    @cython.final
    cdef int pull_many(self, MsgVec* v, size_t most, int64_t most_bytes, object timeout) except -1

    @cython.final
    cdef int pull_now(self, MsgVec* v, size_t most, int64_t most_bytes) except -1

    @cython.final
    cdef MsgVec* _parts(self, object parts) except NULL

    @cython.final
    cdef int refuse_router(self) except -1

    @cython.final
    cdef int owe(self) except -1

    @cython.final
    cdef int refuse_idle(self) except -1
