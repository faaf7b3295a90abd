"""SocketCore: sending and receiving for Python, the base class of mqcore.Socket."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec, msg_size
from mqcore.base.status cimport MQ_OK
from mqcore.sock.handle cimport SocketHandle
from mqcore.sock.sock cimport sock_send, sock_send_to

cdef enum:
    HOLD_GIL = 64 * 1024      # larger messages are sent without the GIL


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
    cdef int pull_owing(self, MsgVec* v, object timeout) except -1

    @cython.final
    cdef int pull_now_owing(self, MsgVec* v) except -1

    @cython.final
    cdef void forgive(self) noexcept

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
    cdef void unowe(self) noexcept

    @cython.final
    cdef int refuse_idle(self) except -1


# Nothing keeps a call from going on; check() says what else does.
cdef inline bint unhindered(SocketCore self) noexcept:
    return not (self.s == NULL or self.plane.forked or self.owned.load() or self.s.closing.load()
                or self.plane.plane.pool.released.load() != NULL or self.s.lock.load())


# check(), but what goes well is decided here.
cdef inline int ready(SocketCore self) except -1:
    if not unhindered(self):
        self.check()
    return 0


# One try to send. Status; the parts stay the caller's unless MQ_OK.
cdef inline int offer(SocketCore self, Msg* parts, size_t n, uint32_t peer) noexcept:
    cdef int rc
    cdef size_t i
    cdef size_t size = 0
    for i in range(n):
        size += msg_size(&parts[i])
    if size > HOLD_GIL or self.s.lock.load():
        with nogil:
            rc = sock_send_to(self.s, peer, parts, n) if peer else sock_send(self.s, parts, n)
    else:
        rc = sock_send_to(self.s, peer, parts, n) if peer else sock_send(self.s, parts, n)
    if rc == MQ_OK and not peer and self.answers:
        self.forgive()
    return rc
