"""A part's body that the input cuts off: memory that follows the bytes that came. For decoders.

A slab that the body fills well, memory that was made ahead for it (a Landing), or a block that
starts small and doubles: a peer that announces much and sends nothing costs nothing. Called by
whoever holds the engine's lease. Statuses
are MQ_OK and MQ_NOMEM unless another is named.
"""

from libc.stdint cimport uint8_t, uint64_t

from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Landing, Owner, Pool
from mqcore.wire.codec cimport Codec, Input

cdef enum:
    DIRECT_MIN = 8 * 1024     # a smaller rest is read together with what follows it
    COMMAND_MAX = 64 * 1024   # a command may be so long whatever max_message_size says

cdef struct Body:             # zero-initialise
    bint busy                 # one is under way
    uint64_t size             # of all of it, as far as is known
    uint64_t got
    uint64_t room             # bytes that fit behind part's start without growing
    uint64_t proven           # size of the largest cut-off body that came whole
    Msg part                  # inline, or sole holder of its owner

# May a part be of `size` bytes? `command`: no application's. MQ_OK; MQ_PROTOCOL, the reason set.
cdef int body_check(Codec* c, uint64_t size, bint command) noexcept nogil
# A body of `size` bytes is under way. landing: NULL if it is no application's body. `copy` as in
# Input. `open_end`: more may be announced (body_extend).
cdef int body_open(Body* b, Pool* pool, Landing* landing, uint64_t size, bint copy,
                   bint open_end) noexcept nogil
# It is longer by `more` bytes than was known.
cdef void body_extend(Body* b, uint64_t more) noexcept nogil
# Copies what the input has of it. got == size afterwards: it is whole.
cdef int body_fill(Body* b, Input* input) noexcept nogil
# Where its next bytes may be read to directly, *room of them; 0: not worth it.
cdef int body_direct(Body* b, uint8_t** at, size_t* room) noexcept nogil
# It is whole: moves it to out, without flags.
cdef void body_take(Body* b, Msg* out) noexcept nogil
# Gives up what is under way.
cdef void body_drop(Body* b) noexcept nogil
# A body that is there in one run: inside the handle, or a slice of owner, or a copy if that is
# NULL.
cdef int body_slice(Msg* out, Pool* pool, uint8_t* at, size_t size, Owner* owner) noexcept nogil
