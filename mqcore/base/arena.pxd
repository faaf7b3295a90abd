"""An arena: a slab that bodies of middle size are cut from, one behind the other, so that many
messages cost one block. The arena is its current slab (NULL: none yet). One thread at a time uses
it; each body holds a reference, so the slab outlives the arena's own.
"""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg, msg_init_ref
from mqcore.base.slab cimport Owner, Pool, owner_data, owner_release, owner_retain, slab_new
from mqcore.base.status cimport MQ_NOMEM, MQ_OK


cdef inline void arena_end(Owner** arena) noexcept nogil:
    """Give up the current slab. The next body begins another."""
    if arena[0] != NULL:
        owner_release(arena[0])
        arena[0] = NULL


cdef inline int arena_cut(
        Owner** arena, Pool* pool, uint32_t klass, size_t size, Msg* m) noexcept nogil:
    """Make m a body of `size` bytes in the arena, which the caller fills. A new slab is of class
    `klass`, whose capacity is not below `size`. MQ_OK, MQ_NOMEM."""
    cdef Owner* slab = arena[0]
    if slab == NULL or slab.capacity - slab.used < size:
        arena_end(arena)
        slab = slab_new(pool, klass)
        if slab == NULL:
            return MQ_NOMEM
        slab.used = 0
        arena[0] = slab
    owner_retain(slab)
    msg_init_ref(m, slab, owner_data(slab) + slab.used, size)
    slab.used = min(slab.used + ((size + 7) & ~(<size_t> 7)), slab.capacity)
    return MQ_OK
