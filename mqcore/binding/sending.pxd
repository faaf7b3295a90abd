"""SocketSender: a socket's sending calls, and how a call begins: may it go on, and in which vector.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libcpp.atomic cimport memory_order_release

from mqcore.base.message cimport Msg, MsgVec, msg_size, vec_clear, vec_fini
from mqcore.base.status cimport MQ_OK
from mqcore.binding.internals cimport SocketInternals
from mqcore.sock.sock cimport sock_send, sock_send_to

cdef enum:
    HOLD_GIL = 64 * 1024      # larger messages are sent without the GIL


cdef class SocketSender(SocketInternals):
    @cython.final
    cdef int attempt(self, Msg* parts, size_t n, uint32_t peer) except -1

    @cython.final
    cdef int push(self, Msg* parts, size_t n, object timeout) except -1

    @cython.final
    cdef int push_late(self, Msg* parts, size_t n, int rc, uint32_t seen, object timeout) except -1

    @cython.final
    cdef int push_vec(self, MsgVec* v, int64_t deadline, object timeout, size_t* count) except -1

    @cython.final
    cdef int _send_before(self, MsgVec* v, int64_t deadline, object timeout, size_t* count,
                          bint waits) except -1

    @cython.final
    cdef int _gather(self, MsgVec* v, object data, bint* pinned) except -1

    @cython.final
    cdef int _group(self, Msg* m, bytes group) except -1

    @cython.final
    cdef MsgVec* _parts(self, object parts) except NULL


# The vector of one call at a time; others make their own.
cdef inline MsgVec* take_vec(SocketSender self) except NULL:
    cdef MsgVec* v
    if not self.vec_taken.exchange(1):
        return &self.vec
    v = <MsgVec*> calloc(1, sizeof(MsgVec))
    if v == NULL:
        raise MemoryError()
    return v


cdef inline void give_vec(SocketSender self, MsgVec* v) noexcept:
    if v == &self.vec:
        vec_clear(v)
        self.vec_taken.store(0, memory_order_release)   # SYNC: hands the vector to the next one
    else:
        vec_fini(v)
        free(v)


# Nothing keeps a call from going on; check() says what else does.
cdef inline bint unhindered(SocketSender self) noexcept:
    return not (self.s == NULL or self.plane.forked or self.owned.load() or self.s.closing.load()
                or self.plane.plane.pool.released.load() != NULL or self.s.lock.load())


# check(), but what goes well is decided here.
cdef inline int ready(SocketSender self) except -1:
    if not unhindered(self):
        self.check()
    return 0


# One try to send. Status; the parts stay the caller's unless MQ_OK.
cdef inline int offer(SocketSender self, Msg* parts, size_t n, uint32_t peer) noexcept:
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
