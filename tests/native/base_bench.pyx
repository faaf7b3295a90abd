"""Python's view of `mqcore.base`, for tests and benchmarks: pool, owner, handle, queue, pipe.

Each class owns one C struct and calls the inline functions of base on it, so that a test in Python
(and hypothesis) drives the very code that the data plane runs. Nothing here checks arguments beyond
what keeps the process alive. The two-thread stress is in pipe_stress.pyx.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from mqcore.base.includes cimport aligned_alloc
from mqcore.base.lock cimport lock_release, lock_take
from mqcore.base.message cimport (
    MSG_INLINE_MAX, MSG_MORE, MSG_REF, Msg, MsgVec, msg_close, msg_copy, msg_data, msg_init,
    msg_init_copy, msg_init_inline, msg_init_ref, msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport (
    LANDINGS, SLAB_CLASSES, Owner, heap_grow, heap_new, landing_clear, landing_take, owner_data,
    owner_release, owner_retain, pool_drain_released, pool_free, pool_new, pyobj_new, pyobj_room,
    slab_new,
)
from mqcore.base.ypipe cimport (
    YPipe, ypipe_check_read, ypipe_fini, ypipe_flush, ypipe_init, ypipe_peek, ypipe_read,
    ypipe_unwrite, ypipe_write,
)
from mqcore.base.yqueue cimport CHUNK, CHUNK_FIRST, Chunk, YQueue

SIZES = {
    "Msg": sizeof(Msg), "Owner": sizeof(Owner), "Chunk": sizeof(Chunk), "YQueue": sizeof(YQueue),
    "YPipe": sizeof(YPipe), "MSG_INLINE_MAX": MSG_INLINE_MAX, "CHUNK": CHUNK,
    "CHUNK_FIRST": CHUNK_FIRST, "SLAB_CLASSES": SLAB_CLASSES,
    "LANDINGS": LANDINGS,
}


cdef class BasePool:
    def __cinit__(self):
        self.pool = pool_new()
        if self.pool == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.pool != NULL:
            pool_drain_released(self.pool)
            pool_free(self.pool)

    @property
    def live(self) -> int:
        return self.pool.live.load()

    @property
    def live_bytes(self) -> int:
        return self.pool.live_bytes.load()

    @property
    def allocations(self) -> int:
        return self.pool.allocations.load()

    def lock(self):
        """As a thread that is within the pool holds it."""
        lock_take(&self.pool.lock)

    def unlock(self):
        lock_release(&self.pool.lock)

    def kept(self, int klass) -> int:
        """Freed slabs that wait in the pool for their next use."""
        return self.pool.n_free[klass]

    def slab(self, int klass):
        return _owner(self, slab_new(self.pool, klass))

    def heap(self, size_t size):
        return _owner(self, heap_new(self.pool, size))

    def pyobj(self, obj):
        cdef Owner* owner
        Py_INCREF(obj)
        owner = pyobj_new(self.pool, <void*> <PyObject*> obj)
        return _owner(self, owner)

    def drain(self) -> int:
        return pool_drain_released(self.pool)


cdef BaseOwner _owner(BasePool pool, Owner* owner):
    cdef BaseOwner self
    if owner == NULL:
        raise MemoryError
    self = BaseOwner.__new__(BaseOwner)
    self.keeper = pool
    self.owner = owner
    return self


cdef class BaseOwner:
    """One reference of an owner. Not released by itself: a test says when."""

    @property
    def refs(self) -> int:
        return self.owner.refs.load()

    @property
    def capacity(self) -> int:
        return self.owner.capacity

    @property
    def kind(self) -> int:
        return self.owner.kind

    @property
    def address(self) -> int:
        return <size_t> owner_data(self.owner)

    def retain(self):
        owner_retain(self.owner)

    def release(self):
        with nogil:
            owner_release(self.owner)

    def grow(self, size_t size):
        cdef Owner* moved = heap_grow(self.owner, size)
        if moved == NULL:
            raise MemoryError
        self.owner = moved

    def write(self, bytes data):
        memcpy(owner_data(self.owner), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def read(self, size_t size) -> bytes:
        return PyBytes_FromStringAndSize(<char*> owner_data(self.owner), size)

    def message(self, size_t start, size_t size):
        """A handle on a slice of this owner; takes a reference of its own."""
        cdef Handle handle = Handle(self.keeper)
        owner_retain(self.owner)
        msg_init_ref(&handle.m, self.owner, owner_data(self.owner) + start, size)
        return handle


cdef class BaseLanding:
    """Memory made ahead; cleared by the test."""

    def __cinit__(self, BasePool keeper):
        self.keeper = keeper

    def put(self, int slot, bytes body):
        cdef Owner* owner = pyobj_room(
            self.keeper.pool, <void*> body, <uint8_t*> PyBytes_AS_STRING(body), len(body))
        if owner == NULL:
            raise MemoryError
        Py_INCREF(body)
        self.landing.slots[slot].store(owner)

    def take(self, size_t size):
        cdef Owner* owner = landing_take(&self.landing, size)
        return None if owner == NULL else _owner(self.keeper, owner)

    def clear(self):
        landing_clear(&self.landing)


cdef bytes _body(Msg* m):
    return PyBytes_FromStringAndSize(<char*> msg_data(m), msg_size(m))


cdef int _init_copy(Msg* m, BasePool keeper, bytes body) except -1:
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(body)
    if msg_init_copy(m, keeper.pool, data, PyBytes_GET_SIZE(body)):
        raise MemoryError
    return 0


cdef class Handle:
    """A message handle. What it holds must be closed, moved or given away by the test."""

    def __init__(self, BasePool keeper, data=None, bint more=False, bint inline=False):
        cdef bytes body
        self.keeper = keeper
        msg_init(&self.m)
        if data is None:
            return
        body = data
        if inline:
            if len(body) > MSG_INLINE_MAX:
                raise ValueError("too long to be inline")
            msg_init_inline(&self.m, <const uint8_t*> PyBytes_AS_STRING(body), len(body))
        else:
            _init_copy(&self.m, keeper, body)
        if more:
            self.m.flags |= MSG_MORE

    @property
    def by_reference(self) -> bool:
        return self.m.kind == MSG_REF

    @property
    def refs(self) -> int:
        return self.m.u.ref.owner.refs.load() if self.m.kind == MSG_REF else 0

    @property
    def address(self) -> int:
        return <size_t> msg_data(&self.m)

    @property
    def flags(self) -> int:
        return self.m.flags

    @property
    def peer(self) -> int:
        return self.m.peer

    @peer.setter
    def peer(self, unsigned int value):
        self.m.peer = value

    def __len__(self):
        return msg_size(&self.m)

    def __bytes__(self):
        return _body(&self.m)

    def copy(self):
        cdef Handle other = Handle(self.keeper)
        msg_copy(&other.m, &self.m)
        return other

    def move(self):
        """Plain assignment, and the source forgotten: how handles move everywhere."""
        cdef Handle other = Handle(self.keeper)
        other.m = self.m
        msg_init(&self.m)
        return other

    def close(self):
        with nogil:
            msg_close(&self.m)


def vector_roundtrip(BasePool keeper, list bodies, int rounds=1):
    """Push a copy of every body, read them back, clear; the bodies as read in the last round."""
    cdef MsgVec v
    cdef Msg m
    cdef bytes body
    cdef size_t i
    cdef list out = []
    v.at = NULL
    v.n = 0
    v.cap = 0
    try:
        for _ in range(rounds):
            out = []
            for body in bodies:
                _init_copy(&m, keeper, body)
                if vec_push(&v, &m):
                    raise MemoryError
            for i in range(v.n):
                out.append(_body(&v.at[i]))
            vec_clear(&v)
            if v.n:
                raise AssertionError("vec_clear left handles")
    finally:
        vec_fini(&v)
    return out


cdef class BasePipe:
    """A ypipe, both ends in one thread."""

    def __cinit__(self, BasePool keeper):
        self.keeper = keeper
        self.pipe = <YPipe*> aligned_alloc(64, sizeof(YPipe))
        if self.pipe == NULL or ypipe_init(self.pipe):
            raise MemoryError

    def __dealloc__(self):
        if self.pipe != NULL:
            ypipe_fini(self.pipe)
            free(self.pipe)

    def write(self, bytes body, bint complete=True):
        cdef Handle handle = Handle(self.keeper, body, more=not complete)
        if ypipe_write(self.pipe, &handle.m, complete):
            raise MemoryError

    def unwrite(self):
        """The body taken back, or None."""
        cdef Handle handle = Handle(self.keeper)
        return _taken(handle) if ypipe_unwrite(self.pipe, &handle.m) else None

    def flush(self) -> bool:
        return ypipe_flush(self.pipe)

    def check_read(self) -> bool:
        return ypipe_check_read(self.pipe)

    def read(self):
        """The next body, or None."""
        cdef Handle handle = Handle(self.keeper)
        return _taken(handle) if ypipe_read(self.pipe, &handle.m) else None

    def peek(self):
        cdef Msg* m = ypipe_peek(self.pipe)
        if m == NULL:
            return None
        return _body(m)

    def chunks(self) -> list:
        """Capacities of the chunks in use, oldest first, and of the spare one (0: none)."""
        cdef Chunk* chunk = self.pipe.q.begin_chunk
        cdef Chunk* spare = self.pipe.q.spare.load()
        cdef list caps = []
        while chunk != NULL:
            caps.append(chunk.cap)
            chunk = chunk.next
        return [caps, 0 if spare == NULL else spare.cap]

    def spin(self, uint64_t rounds, uint64_t batch):
        """`rounds` times: write `batch` empty messages, flush, read them. False: one was
        missing."""
        cdef uint64_t i, j
        cdef Msg m
        cdef Msg out
        cdef bint good = True
        msg_init(&m)
        with nogil:
            for i in range(rounds):
                for j in range(batch):
                    if ypipe_write(self.pipe, &m, True):
                        good = False
                ypipe_flush(self.pipe)
                for j in range(batch):
                    if not ypipe_read(self.pipe, &out):
                        good = False
        return good


cdef bytes _taken(Handle handle):
    cdef bytes body = bytes(handle)
    msg_close(&handle.m)
    return body
