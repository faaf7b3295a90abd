"""Memory that message bodies live in: reference-counted owners and the pool that recycles them.

An `Owner` is a block with a reference count in front. Three kinds: SLAB (fixed size class, goes
back to its pool), HEAP (exact size, freed) and PYOBJ (keeps a Python object alive; the last
release puts it on the pool's release stack, which threads that hold the GIL drain - never an I/O
thread). A `Pool` belongs to one context. Any thread may retain and release; the pool has a lock of
its own, held for a few instructions and never across a system call.

The pool keeps the last large blocks that were freed, 8 MiB of them at most: `malloc` would give
them back to the kernel, which clears each page before the next body is read.

A forked child may have copied the pool's lock while a thread of the parent held it. The child
leaves the free lists alone then: slabs come from malloc and go back to it.

A `Landing` holds Python objects created ahead, whose memory is for expected large bodies: data read
into one becomes that object without a copy. No code sees the object before it is full.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic, memory_order_acq_rel, memory_order_relaxed

from mqcore.base.lock cimport Lock

cdef enum OwnerKind:
    OWNER_SLAB = 0
    OWNER_HEAP = 1
    OWNER_PYOBJ = 2

cdef enum:
    SLAB_CLASSES = 3          # payload capacities: 8, 64, 256 KiB (a little less: the header)
    LANDINGS = 16
    LAND_FROM = 256 * 1024    # smaller bodies are read in larger pieces than one body

cdef struct Pool:
    Lock lock                     # of the free lists
    int pid                       # the process that made it
    Owner* free[3]
    uint32_t n_free[3]
    Owner* spent                  # freed HEAP owners of large bodies, the last one first
    size_t spent_bytes
    atomic[int64_t] live          # owners in use (leak counter)
    atomic[int64_t] live_bytes    # their capacity: what pinned_bytes shows
    atomic[uint64_t] allocations  # malloc calls ever made: a steady stream must not move it
    atomic[Owner*] released       # PYOBJ owners waiting for the GIL

cdef struct Owner:
    atomic[int64_t] refs
    Pool* pool
    Owner* next
    void* obj                     # PYOBJ: the object
    size_t capacity               # bytes of payload behind this header; PYOBJ: at `room`, or 0
    uint32_t kind
    uint32_t klass
    uint8_t* room                 # PYOBJ of a landing: the object's memory, to be filled
    uint64_t used                 # of an arena's slab: bytes that bodies have
                                  # the header is 64 bytes: the payload starts aligned

cdef struct Landing:              # zero-initialise
    atomic[size_t] size           # what is expected next; 0: nothing large
    atomic[size_t] least          # from this size on bodies are worth it
    atomic[Owner*] slots[16]

# -- any thread -------------------------------------------------------------------------------
cdef size_t slab_capacity(uint32_t klass) noexcept nogil  # of its payload
cdef Pool* pool_new() noexcept nogil
cdef void pool_free(Pool* pool) noexcept nogil            # all owners must be released
cdef Owner* slab_new(Pool* pool, uint32_t klass) noexcept nogil   # refs = 1; NULL: out of memory
cdef Owner* heap_new(Pool* pool, size_t size) noexcept nogil      # refs = 1; exact size
cdef Owner* heap_grow(Owner* owner, size_t size) noexcept nogil  # sole holder; may move; NULL: same
cdef Owner* pyobj_new(Pool* pool, void* obj) noexcept nogil      # takes one reference of obj
cdef Owner* pyobj_room(Pool* pool, void* obj, uint8_t* room, size_t size) noexcept nogil
cdef void owner_free(Owner* owner) noexcept nogil         # called by owner_release at zero
cdef Owner* landing_take(Landing* landing, size_t size) noexcept nogil  # of exactly size, or NULL
cdef void landing_clear(Landing* landing) noexcept nogil
# -- with the GIL -----------------------------------------------------------------------------
cdef int pool_drain_released(Pool* pool) except -1        # decref what waits; returns how many


cdef inline uint8_t* owner_data(Owner* owner) noexcept nogil:
    return <uint8_t*> owner + 64


cdef inline void owner_retain(Owner* owner) noexcept nogil:
    # SYNC: relaxed: a new reference is made from one that is already held
    owner.refs.fetch_add(1, memory_order_relaxed)


cdef inline void owner_retain_many(Owner* owner, int64_t n) noexcept nogil:
    # SYNC: relaxed: as owner_retain
    owner.refs.fetch_add(n, memory_order_relaxed)


cdef inline void owner_give_back(Owner* owner, int64_t n) noexcept nogil:
    """Return surplus references. The caller holds another one."""
    # SYNC: relaxed: never the last ones, and nothing was written through them
    owner.refs.fetch_sub(n, memory_order_relaxed)


cdef inline void owner_release(Owner* owner) noexcept nogil:
    # SYNC: acq_rel: the last releaser sees every write made through the other references
    if owner.refs.fetch_sub(1, memory_order_acq_rel) == 1:
        owner_free(owner)
