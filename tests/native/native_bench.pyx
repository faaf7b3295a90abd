"""The loops of a measurement over the C socket, without Python between the messages.

They call what Socket.send, recv, send_many and recv_many call (a try, and sock_wait when there is
nothing to do), so that perf/native.py can set them beside the same loops over libzmq's C API. Also
the handle alone, for perf/micro.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from libcpp.atomic cimport atomic

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    Msg, MsgVec, msg_close, msg_data, msg_init_copy, msg_init_ref, msg_size, vec_clear, vec_fini,
    vec_push,
)
from mqcore.base.slab cimport Owner, Pool, owner_release, owner_retain
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.binding.core cimport SocketCore
from mqcore.binding.message cimport part_copy
from mqcore.sock.sock cimport Sock, sock_recv, sock_recv_many, sock_send, sock_send_many
from mqcore.sock.wait cimport sock_wait
from mqcore.testing.native.base_bench cimport BasePool

cdef enum:
    BY_REFERENCE = 4096       # as Socket.send does with bytes
    MANY = 256                # messages a call


cdef struct Body:
    const uint8_t* data
    size_t size
    Owner* owner              # large: sent by reference to this copy


cdef class Loops:
    """One socket and the bodies that it sends in turn."""

    cdef SocketCore core
    cdef list texts
    cdef Body* bodies
    cdef size_t n
    cdef size_t turn
    cdef uint64_t sum         # the receiver looks at what it got

    def __cinit__(self, SocketCore core, list texts):
        cdef size_t i
        cdef bytes text
        self.core = core
        self.texts = texts
        self.n = len(texts)
        self.bodies = <Body*> calloc(self.n, sizeof(Body))
        if self.bodies == NULL:
            raise MemoryError()
        for i in range(self.n):
            text = texts[i]
            self.bodies[i].data = <const uint8_t*> PyBytes_AS_STRING(text)
            self.bodies[i].size = PyBytes_GET_SIZE(text)
            if self.bodies[i].size >= BY_REFERENCE:
                self.adopt(&self.bodies[i])

    cdef int adopt(self, Body* body) except -1:
        cdef Msg m
        if msg_init_copy(&m, self.core.plane.plane.pool, body.data, body.size):
            raise MemoryError()
        body.owner = m.u.ref.owner
        body.data = m.u.ref.data
        return 0

    def __dealloc__(self):
        cdef size_t i
        if self.bodies != NULL:
            for i in range(self.n):
                if self.bodies[i].owner != NULL:
                    owner_release(self.bodies[i].owner)
            free(self.bodies)

    cdef int make(self, Msg* m) noexcept nogil:
        """The next body as a handle. Status."""
        cdef Body* body = &self.bodies[self.turn]
        self.turn = self.turn + 1 if self.turn + 1 < self.n else 0
        if body.owner != NULL:
            owner_retain(body.owner)
            msg_init_ref(m, body.owner, <uint8_t*> body.data, body.size)
            return MQ_OK
        return part_copy(m, self.core.plane.plane.pool, &self.core.arena, body.data, body.size)

    cdef void look(self, MsgVec* v) noexcept nogil:
        cdef size_t i
        for i in range(v.n):
            if msg_size(&v.at[i]):
                self.sum += msg_data(&v.at[i])[0]
        vec_clear(v)

    cdef int give_one(self) noexcept nogil:
        cdef Sock* s = self.core.s
        cdef Msg m
        cdef uint32_t seen = s.change.load()
        cdef int rc = self.make(&m)
        if rc != MQ_OK:
            return rc
        while True:
            rc = sock_send(s, &m, 1)
            if rc == MQ_OK:
                return rc
            if rc != MQ_AGAIN and rc != MQ_FULL:
                msg_close(&m)
                return rc
            sock_wait(s, seen, -1, False, False)
            seen = s.change.load()

    cdef int take_one(self, MsgVec* v) noexcept nogil:
        cdef Sock* s = self.core.s
        cdef uint32_t seen = s.change.load()
        cdef int rc
        while True:
            rc = sock_recv(s, v)
            if rc != MQ_AGAIN:
                return rc
            sock_wait(s, seen, -1, False, False)
            seen = s.change.load()

    cdef int give_many(self, MsgVec* v, size_t count) noexcept nogil:
        cdef Sock* s = self.core.s
        cdef Msg m
        cdef size_t i
        cdef size_t done = 0
        cdef size_t taken = 0
        cdef uint32_t seen
        cdef int rc = MQ_OK
        for i in range(count):
            rc = self.make(&m)
            if rc != MQ_OK:
                return rc
            if vec_push(v, &m):
                msg_close(&m)
                return MQ_NOMEM
        while done < v.n:
            seen = s.change.load()
            rc = sock_send_many(s, v, done, &done, &taken)
            if rc == MQ_AGAIN or rc == MQ_FULL:
                sock_wait(s, seen, -1, False, False)
            elif rc != MQ_OK:
                break
        for i in range(done, v.n):
            msg_close(&v.at[i])
        v.n = 0
        return rc

    cdef int take_many(self, MsgVec* v, size_t most, size_t* count) noexcept nogil:
        cdef Sock* s = self.core.s
        cdef uint32_t seen
        cdef int rc
        while True:
            seen = s.change.load()
            rc = sock_recv_many(s, v, most, INT64_MAX, count)
            if rc != MQ_AGAIN:
                return rc
            sock_wait(s, seen, -1, False, False)

    def give(self, size_t count, bint many=False):
        """Send so many messages, waiting for room as long as it takes."""
        cdef MsgVec v
        cdef size_t n
        cdef int rc = MQ_OK
        memset(&v, 0, sizeof(MsgVec))
        with nogil:
            self.core.s.users.fetch_add(1)
            while count and rc == MQ_OK:
                n = min(count, <size_t> MANY) if many else 1
                rc = self.give_many(&v, n) if many else self.give_one()
                count -= n
            self.core.s.users.fetch_sub(1)
            vec_fini(&v)
        if rc != MQ_OK:
            self.core.fail(rc, True)

    def take(self, size_t count, bint many=False):
        """Receive so many messages."""
        cdef MsgVec v
        cdef size_t n = 1
        cdef int rc = MQ_OK
        memset(&v, 0, sizeof(MsgVec))
        with nogil:
            self.core.s.users.fetch_add(1)
            while count and rc == MQ_OK:
                if many:
                    rc = self.take_many(&v, min(count, <size_t> MANY), &n)
                else:
                    rc = self.take_one(&v)
                self.look(&v)
                count -= n
            self.core.s.users.fetch_sub(1)
            vec_fini(&v)
        if rc != MQ_OK:
            self.core.fail(rc, False)

    def echo(self, size_t count):
        """Answer so many requests with their own bodies."""
        cdef MsgVec v
        cdef int rc = MQ_OK
        memset(&v, 0, sizeof(MsgVec))
        with nogil:
            self.core.s.users.fetch_add(1)
            while count and rc == MQ_OK:
                rc = self.take_one(&v)
                if rc == MQ_OK:
                    rc = sock_send(self.core.s, v.at + v.n - 1, 1)
                if rc == MQ_OK:
                    v.n -= 1          # moved
                vec_clear(&v)
                count -= 1
            self.core.s.users.fetch_sub(1)
            vec_fini(&v)
        if rc != MQ_OK:
            self.core.fail(rc, True)

    def ask(self, size_t count):
        """So many round trips; the seconds that each took."""
        cdef MsgVec v
        cdef size_t i
        cdef int rc = MQ_OK
        cdef int64_t before
        cdef int64_t* trips = <int64_t*> calloc(count, sizeof(int64_t))
        if trips == NULL:
            raise MemoryError()
        memset(&v, 0, sizeof(MsgVec))
        with nogil:
            self.core.s.users.fetch_add(1)
            for i in range(count):
                before = now_ns()
                rc = self.give_one()
                if rc == MQ_OK:
                    rc = self.take_one(&v)
                if rc != MQ_OK:
                    break
                trips[i] = now_ns() - before
                self.look(&v)
            self.core.s.users.fetch_sub(1)
            vec_fini(&v)
        found = [trips[i] * 1e-9 for i in range(count)]
        free(trips)
        if rc != MQ_OK:
            self.core.fail(rc, False)
        return found


def handles(BasePool keeper, bytes body, size_t count) -> float:
    """Seconds to make and close so many handles of a body, as a send does."""
    cdef atomic[Owner*] arena
    cdef Pool* pool = keeper.pool
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(body)
    cdef size_t size = PyBytes_GET_SIZE(body)
    cdef Owner* slab
    cdef Msg m
    cdef size_t i
    cdef int64_t start = now_ns()
    arena.store(NULL)
    with nogil:
        for i in range(count):
            if part_copy(&m, pool, &arena, data, size):
                break
            msg_close(&m)
    seconds = (now_ns() - start) * 1e-9
    slab = arena.exchange(NULL)
    if slab != NULL:
        owner_release(slab)
    return seconds
