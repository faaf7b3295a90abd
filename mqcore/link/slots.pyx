"""Engine slots: see slots.pxd."""

from libc.stdlib cimport calloc, realloc

from mqcore.base.lock cimport lock_release, lock_take

cdef enum:
    BLOCK = 64                # slots allocated together
    REST = 32                 # free slots that rest before the oldest of them is used again


cdef void _give(Plane* plane, Engine* e) noexcept nogil:
    """First in, first out: a slot rests before reuse. A thread that still has its number or address
    (a harvested edge, a kick after unlocking) then does not hit the next connection."""
    e.free_next = NULL
    if plane.n_free:
        (<Engine*> plane.last_free).free_next = e
    else:
        plane.free_engines = e
    plane.last_free = e
    plane.n_free += 1


cdef bint _more_slots(Plane* plane) noexcept nogil:
    cdef void** blocks = <void**> realloc(plane.blocks, (plane.n_blocks + 1) * sizeof(void*))
    cdef Engine* block
    cdef int i
    if blocks == NULL:
        return False
    plane.blocks = blocks
    block = <Engine*> calloc(BLOCK, sizeof(Engine))
    if block == NULL:
        return False
    blocks[plane.n_blocks] = block
    for i in range(BLOCK):
        block[i].fd = -1
        block[i].slot = plane.n_blocks * BLOCK + i
        _give(plane, &block[i])
    plane.n_blocks += 1
    plane.n_slots += BLOCK
    return True


cdef Engine* engine_at(Plane* plane, uint32_t slot) noexcept nogil:
    if slot >= plane.n_slots:
        return NULL
    return <Engine*> plane.blocks[slot // BLOCK] + slot % BLOCK


cdef Engine* slot_take(Plane* plane) noexcept nogil:
    cdef Engine* e = NULL
    lock_take(&plane.slots_lock)
    if plane.n_free > REST or _more_slots(plane) or plane.n_free:
        e = <Engine*> plane.free_engines
        plane.free_engines = e.free_next
        plane.n_free -= 1
    lock_release(&plane.slots_lock)
    return e


cdef void slot_give(Plane* plane, Engine* e) noexcept nogil:
    lock_take(&plane.slots_lock)
    _give(plane, e)
    lock_release(&plane.slots_lock)
