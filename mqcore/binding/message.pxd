"""From handles to Python objects and back."""

from libc.stdint cimport uint8_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.slab cimport Landing, Owner, Pool

cdef enum:
    ARENA_TAKEN = 1           # a call copies into the slab now; another makes a block of its own

cdef enum:                    # what a receiving call gives
    GIVE_BYTES = 0
    GIVE_PARTS = 1
    GIVE_MESSAGE = 2
    GIVE_MANY = 4
    GIVE_BATCH = 5

cdef class Body:                  # exports the buffer of one large part
    cdef Msg m

# Make a handle of a copy of the bytes: inside, in the arena's slab (middle sizes; one call at a
# time has it, the slot says ARENA_TAKEN meanwhile), or in a block of its own. Status.
cdef int part_copy(Msg* m, Pool* pool, atomic[Owner*]* arena, const uint8_t* data,
                   size_t size) noexcept nogil
# Make a handle of any bytes-like object: large `bytes` by reference (pinned), large views of what
# was received by their slab, others copied.
cdef int part_from(Msg* m, Pool* pool, atomic[Owner*]* arena, object data, bint* pinned) except -1
# Parts from..to of v. joined: one bytes; list: one each. Envelope parts are left out by `first`.
cdef bytes joined(MsgVec* v, size_t start, size_t end)
cdef list bodies(MsgVec* v)                 # one bytes a message
cdef list parts_list(MsgVec* v, size_t start, size_t end)
# The last body had this size: if it is large, and the one before had it too, memory for the next
# ones is made, which recv() then need not copy. At most 4 MiB of it, or two bodies of up to 16 MiB,
# or one of up to 64 MiB;
# of bodies smaller than LAND_FROM (where landing.least lets them) at most 512 KiB.
cdef int foresee(Landing* landing, Pool* pool, size_t size) except -1
cdef object part_view(Msg* m)     # bytes, or above 4 KiB a memoryview that keeps the slab
# index after the message's last part
cdef size_t message_end(MsgVec* v, size_t start) noexcept nogil
cdef size_t skip_envelope(MsgVec* v, size_t start) noexcept nogil


cdef class Message:
    cdef object core              # SocketCore, for reply and peer
    cdef readonly tuple parts
    cdef MsgVec envelope
    cdef readonly bytes routing_id
    cdef readonly double received_at
    cdef readonly int peer_id
    cdef atomic[uint32_t] answered    # by a reply(), or one is being tried
    cdef object _peer

cdef Message message_new(object core, MsgVec* v, size_t start, size_t end, double now)
