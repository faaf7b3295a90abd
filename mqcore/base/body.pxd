"""The body of a part that arrives in several reads: memory that grows with the received bytes.

It is a slab that the body fills well, memory prepared for it (a Landing), or a block that starts
small and doubles: a peer that announces much and sends nothing costs nothing. The holder of the
engine's lease calls these. Statuses are MQ_OK and MQ_NOMEM.
"""

from libc.stdint cimport uint8_t, uint64_t

from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Landing, Owner, Pool

cdef struct Body:             # zero-initialise
    bint busy                 # one is under way
    uint64_t size             # of all of it, as far as is known
    uint64_t got
    uint64_t room             # bytes that fit behind part's start without growing
    uint64_t proven           # size of the largest body that came whole, in whole words
    Msg part                  # inline, or sole holder of its owner

# A body of `size` bytes begins. landing: NULL if it is not an application's body. `copy`: few bytes
# come at a time, so no slab. `open_end`: more may be announced (body_extend).
cdef int body_open(Body* b, Pool* pool, Landing* landing, uint64_t size, bint copy,
                   bint open_end) noexcept nogil
# The same in memory of the caller's choice, of `room` bytes at `data`. Takes a reference of owner.
cdef void body_begin(
    Body* b, Owner* owner, uint8_t* data, uint64_t size, uint64_t room) noexcept nogil
# The same in a block of its own that starts small.
cdef int body_block(Body* b, Pool* pool, uint64_t size) noexcept nogil
# It is longer by `more` bytes than was known.
cdef void body_extend(Body* b, uint64_t more) noexcept nogil
# Where its next bytes go, *room of them, at least one. For a body that is not whole.
cdef int body_room(Body* b, uint8_t** at, size_t* room) noexcept nogil
# It is whole: moves it to out.
cdef void body_take(Body* b, Msg* out) noexcept nogil
# Gives up what is under way.
cdef void body_drop(Body* b) noexcept nogil
