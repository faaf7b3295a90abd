"""Engine slots of a plane: type-stable, reused after a rest, freed with the plane."""

from libc.stdint cimport uint32_t

from mqcore.link.engine cimport Engine
from mqcore.link.plane cimport Plane

# Any thread.
cdef Engine* slot_take(Plane* plane) noexcept nogil       # NULL: out of memory
cdef void slot_give(Plane* plane, Engine* e) noexcept nogil
cdef Engine* engine_at(Plane* plane, uint32_t slot) noexcept nogil        # NULL: no such slot
