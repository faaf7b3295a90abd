"""Owners and their pool: see slab.pxd for the contract."""

from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from mqcore.base.includes cimport getpid
from mqcore.base.lock cimport lock_release, lock_try, lock_wait

cdef size_t[3] CAPACITY = [8 * 1024 - 64, 64 * 1024 - 64, 256 * 1024 - 64]
cdef uint32_t[3] KEEP = [64, 32, 16]        # freed slabs kept per class; malloc gets the rest

cdef enum:
    SPENT_FROM = 128 * 1024       # freed HEAP owners of this capacity and more are kept,
    SPENT_EACH = 4 << 20
    SPENT_BYTES = 8 << 20         # so much memory of them


cdef inline bint _lock(Pool* pool) noexcept nogil:
    """False: a thread of the parent process held the lock at the fork, and no thread releases
    it."""
    if not lock_try(&pool.lock):
        if getpid() != pool.pid:
            return False
        lock_wait(&pool.lock)
    return True


cdef size_t slab_capacity(uint32_t klass) noexcept nogil:
    return CAPACITY[klass]


cdef Pool* pool_new() noexcept nogil:
    cdef Pool* pool = <Pool*> malloc(sizeof(Pool))
    if pool != NULL:
        memset(<void*> pool, 0, sizeof(Pool))
        pool.pid = getpid()
    return pool


cdef void pool_free(Pool* pool) noexcept nogil:
    cdef int klass
    cdef Owner* owner
    for klass in range(SLAB_CLASSES):
        while pool.free[klass] != NULL:
            owner = pool.free[klass]
            pool.free[klass] = owner.next
            free(owner)
    while pool.spent != NULL:
        owner = pool.spent
        pool.spent = owner.next
        free(owner)
    free(pool)


cdef Owner* _new(Pool* pool, size_t capacity, uint32_t kind, uint32_t klass) noexcept nogil:
    cdef Owner* owner = <Owner*> malloc(sizeof(Owner) + capacity)
    if owner == NULL:
        return NULL
    memset(<void*> owner, 0, sizeof(Owner))
    owner.pool = pool
    owner.capacity = capacity
    owner.kind = kind
    owner.klass = klass
    pool.allocations.fetch_add(1)
    return owner


cdef inline void _count_in(Pool* pool, Owner* owner) noexcept nogil:
    owner.refs.store(1)
    pool.live.fetch_add(1)
    pool.live_bytes.fetch_add(<int64_t> owner.capacity)


cdef Owner* slab_new(Pool* pool, uint32_t klass) noexcept nogil:
    cdef Owner* owner = NULL
    if _lock(pool):
        owner = pool.free[klass]
        if owner != NULL:
            pool.free[klass] = owner.next
            pool.n_free[klass] -= 1
        lock_release(&pool.lock)
    if owner == NULL:
        owner = _new(pool, CAPACITY[klass], OWNER_SLAB, klass)
        if owner == NULL:
            return NULL
    _count_in(pool, owner)
    return owner


cdef Owner* _spent(Pool* pool, size_t size) noexcept nogil:
    """A kept block that is large enough, and not much larger. NULL: there is none."""
    cdef Owner** at = &pool.spent
    cdef Owner* owner = NULL
    if not SPENT_FROM <= size <= SPENT_EACH or not _lock(pool):
        return NULL
    while at[0] != NULL and not size <= at[0].capacity <= size + size // 4:
        at = &at[0].next
    if at[0] != NULL:
        owner = at[0]
        at[0] = owner.next
        pool.spent_bytes -= owner.capacity
    lock_release(&pool.lock)
    return owner


cdef bint _keep(Pool* pool, Owner* owner) noexcept nogil:
    cdef bint kept = False
    if SPENT_FROM <= owner.capacity <= SPENT_EACH and _lock(pool):
        kept = pool.spent_bytes + owner.capacity <= SPENT_BYTES
        if kept:
            owner.next = pool.spent
            pool.spent = owner
            pool.spent_bytes += owner.capacity
        lock_release(&pool.lock)
    return kept


cdef Owner* heap_new(Pool* pool, size_t size) noexcept nogil:
    cdef Owner* owner = _spent(pool, size)
    if owner == NULL:
        owner = _new(pool, size, OWNER_HEAP, 0)
    if owner != NULL:
        _count_in(pool, owner)
    return owner


cdef Owner* heap_grow(Owner* owner, size_t size) noexcept nogil:
    cdef size_t before = owner.capacity
    cdef Owner* moved = <Owner*> realloc(<void*> owner, sizeof(Owner) + size)
    if moved == NULL:
        return NULL
    moved.capacity = size
    moved.pool.live_bytes.fetch_add(<int64_t> size - <int64_t> before)
    return moved


cdef Owner* pyobj_new(Pool* pool, void* obj) noexcept nogil:
    cdef Owner* owner = _new(pool, 0, OWNER_PYOBJ, 0)
    if owner != NULL:
        owner.obj = obj
        _count_in(pool, owner)
    return owner


cdef Owner* pyobj_room(Pool* pool, void* obj, uint8_t* room, size_t size) noexcept nogil:
    cdef Owner* owner = _new(pool, 0, OWNER_PYOBJ, 0)
    if owner != NULL:
        owner.obj = obj
        owner.room = room
        owner.capacity = size
        _count_in(pool, owner)
    return owner


cdef Owner* landing_take(Landing* landing, size_t size) noexcept nogil:
    cdef Owner* owner
    cdef int i
    for i in range(LANDINGS):
        if landing.slots[i].load() == NULL:
            continue
        # SYNC: seq_cst exchange: the receiver owns it, with its creator's writes
        owner = landing.slots[i].exchange(NULL)
        if owner != NULL and owner.capacity == size:
            return owner
        if owner != NULL:
            owner_release(owner)  # of a size that is expected no more
    return NULL


cdef void landing_clear(Landing* landing) noexcept nogil:
    cdef Owner* owner
    cdef int i
    for i in range(LANDINGS):
        if landing.slots[i].load() == NULL:
            continue
        owner = landing.slots[i].exchange(NULL)
        if owner != NULL:
            owner_release(owner)


cdef void owner_free(Owner* owner) noexcept nogil:
    cdef Pool* pool = owner.pool
    cdef uint32_t klass = owner.klass
    cdef Owner* head
    pool.live.fetch_sub(1)
    pool.live_bytes.fetch_sub(<int64_t> owner.capacity)
    if owner.kind == OWNER_PYOBJ:
        head = pool.released.load()
        while True:
            owner.next = head
            if pool.released.compare_exchange_weak(head, owner):
                return
    if owner.kind == OWNER_SLAB and _lock(pool):
        if pool.n_free[klass] < KEEP[klass]:
            owner.next = pool.free[klass]
            pool.free[klass] = owner
            pool.n_free[klass] += 1
            owner = NULL
        lock_release(&pool.lock)
    elif owner.kind == OWNER_HEAP and _keep(pool, owner):
        return
    if owner != NULL:
        free(owner)


cdef int pool_drain_released(Pool* pool) except -1:
    cdef Owner* owner = pool.released.exchange(NULL)
    cdef Owner* following
    cdef int count = 0
    while owner != NULL:
        following = owner.next
        Py_XDECREF(<PyObject*> owner.obj)
        free(owner)
        owner = following
        count += 1
    return count
