"""Python's view of base's arena, fifo, body and spin, for tests: each class owns one C struct."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from mqcore.base.arena cimport arena_cut, arena_end
from mqcore.base.body cimport (
    Body, body_block, body_drop, body_extend, body_open, body_room, body_take,
)
from mqcore.base.fifo cimport (
    Fifo, fifo_drop, fifo_fini, fifo_front, fifo_pop, fifo_put, fifo_take,
)
from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_init_copy, msg_size, vec_fini, vec_grow,
    vec_push,
)
from mqcore.base.slab cimport Landing, Owner
from mqcore.base.spin cimport Spin, spin_failed, spin_paid, spin_time
from mqcore.testing.native.base_bench cimport BasePool


cdef bytes _text(Msg* m):
    return PyBytes_FromStringAndSize(<char*> msg_data(m), msg_size(m))


def grown(list wants):
    """The room that a vector of messages has after each call for so many."""
    cdef MsgVec v
    memset(&v, 0, sizeof(MsgVec))
    found = []
    for want in wants:
        if vec_grow(&v, want):
            raise MemoryError
        found.append(v.cap)
    vec_fini(&v)
    return found


cdef class Line:
    """A Fifo. Messages are lists of bytes."""
    cdef BasePool keeper
    cdef Fifo q

    def __cinit__(self, BasePool keeper):
        self.keeper = keeper
        memset(&self.q, 0, sizeof(Fifo))

    def end(self):
        fifo_fini(&self.q)

    @property
    def counts(self):
        return self.q.n, self.q.msgs, self.q.bytes

    def put(self, list parts):
        cdef MsgVec run
        cdef Msg m
        memset(&run, 0, sizeof(MsgVec))
        for i, part in enumerate(parts):
            msg_init_copy(&m, self.keeper.pool, <const uint8_t*> PyBytes_AS_STRING(part),
                          PyBytes_GET_SIZE(part))
            m.flags = MSG_MORE if i < len(parts) - 1 else 0
            vec_push(&run, &m)
        if fifo_put(&self.q, run.at, run.n):
            raise MemoryError
        run.n = 0
        vec_fini(&run)

    def front(self):
        cdef Msg* m = fifo_front(&self.q)
        return None if m == NULL else _text(m)

    def pop(self):
        cdef Msg m = fifo_pop(&self.q)
        text = _text(&m)
        msg_close(&m)
        return text

    def drop(self):
        fifo_drop(&self.q)

    def take(self):
        cdef MsgVec out
        cdef size_t i
        memset(&out, 0, sizeof(MsgVec))
        if fifo_take(&self.q, &out):
            raise MemoryError
        found = []
        for i in range(out.n):
            found.append(_text(&out.at[i]))
        vec_fini(&out)
        return found


cdef class Slices:
    """An arena of slabs of one class, and the bodies that were cut from it."""
    cdef BasePool keeper
    cdef Owner* arena
    cdef MsgVec cut

    def __cinit__(self, BasePool keeper):
        self.keeper = keeper
        self.arena = NULL
        memset(&self.cut, 0, sizeof(MsgVec))

    def add(self, bytes text, int klass=0):
        cdef Msg m
        if arena_cut(&self.arena, self.keeper.pool, klass, len(text), &m):
            raise MemoryError
        memcpy(m.u.ref.data, PyBytes_AS_STRING(text), len(text))
        vec_push(&self.cut, &m)
        return <size_t> m.u.ref.data

    def all(self):
        cdef size_t i
        return [_text(&self.cut.at[i]) for i in range(self.cut.n)]

    def end(self):
        arena_end(&self.arena)

    def close(self):
        vec_fini(&self.cut)


cdef class Growing:
    """A Body."""
    cdef BasePool keeper
    cdef Body b

    def __cinit__(self, BasePool keeper):
        self.keeper = keeper
        memset(&self.b, 0, sizeof(Body))

    def open(self, size_t size, bint copy=False, bint open_end=False):
        if body_open(&self.b, self.keeper.pool, <Landing*> NULL, size, copy, open_end):
            raise MemoryError

    def block(self, size_t size):
        if body_block(&self.b, self.keeper.pool, size):
            raise MemoryError

    def extend(self, size_t more):
        body_extend(&self.b, more)

    def fill(self, bytes text):
        """As much of it as the next run of memory takes. How much."""
        cdef uint8_t* at = NULL
        cdef size_t room = 0
        if body_room(&self.b, &at, &room):
            raise MemoryError
        assert room
        room = min(room, <size_t> len(text))
        memcpy(at, PyBytes_AS_STRING(text), room)
        self.b.got += room
        return room

    @property
    def left(self):
        return self.b.size - self.b.got

    @property
    def busy(self):
        return self.b.busy != 0

    def take(self):
        cdef Msg m
        body_take(&self.b, &m)
        text = _text(&m)
        msg_close(&m)
        return text

    def drop(self):
        body_drop(&self.b)


cdef class Patience:
    """A Spin."""
    cdef Spin s

    def __cinit__(self):
        memset(&self.s, 0, sizeof(Spin))

    def time(self, most):
        return spin_time(&self.s, most)

    def paid(self, most):
        spin_paid(&self.s, most)

    def failed(self):
        spin_failed(&self.s)
