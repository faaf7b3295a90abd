"""SocketCore: sending and receiving for Python, the base class of mqcore.Socket."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from mqcore.base.message cimport MsgVec
from mqcore.binding.sending cimport SocketSender
from mqcore.sock.watch cimport WATCH_LED, watch_beside


cdef class SocketCore(SocketSender):
    @cython.final
    cdef int pull(self, MsgVec* v, object timeout) except -1

    @cython.final
    cdef int pull_late(self, MsgVec* v, int rc, uint32_t seen, object timeout) except -1

    @cython.final
    cdef int pull_waiting(self, MsgVec* v, uint32_t seen, int64_t deadline, object timeout,
                          bint taker) except -1

    @cython.final
    cdef int pull_owing(self, MsgVec* v, object timeout) except -1

    @cython.final
    cdef int pull_now_owing(self, MsgVec* v) except -1

    @cython.final
    cdef object given(self, MsgVec* v, int kind)

    @cython.final
    cdef int pull_many(self, MsgVec* v, size_t most, int64_t most_bytes, object timeout) except -1

    @cython.final
    cdef int pull_now(self, MsgVec* v, size_t most, int64_t most_bytes) except -1

    @cython.final
    cdef int refuse_router(self) except -1

    @cython.final
    cdef int owe(self) except -1

    @cython.final
    cdef void unowe(self) noexcept

    @cython.final
    cdef int refuse_idle(self) except -1


# A call that does not wait found nothing. While callers lead, and none is here, what has come may
# wait in the kernel: the I/O thread reads it, and the next call finds it.
cdef inline void looked_in_vain(SocketCore self) noexcept:
    if self.s.watch_state.load() == WATCH_LED and not self.s.lead.load():
        watch_beside(self.s)
