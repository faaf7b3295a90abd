"""What decoders share: limits, bodies that lie in the input, and the body that the input truncates
(Codec.body). The holder of the engine's lease calls these. Statuses are MQ_OK and MQ_NOMEM unless
another is named.
"""

from libc.stdint cimport uint8_t, uint64_t

from mqcore.base.body cimport Body
from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Owner, Pool
from mqcore.wire.codec cimport Codec, Input

cdef enum:
    DIRECT_MIN = 8 * 1024     # a smaller rest is read together with what follows it
    COMMAND_MAX = 64 * 1024   # a command may be so long whatever max_message_size says

# May a part be of `size` bytes? `command`: no application's. MQ_OK; MQ_PROTOCOL, the reason set.
cdef int decode_check(Codec* c, uint64_t size, bint command) noexcept nogil
# A body that is there in one run: inside the handle, or a slice of owner, or a copy if that is
# NULL.
cdef int decode_slice(Msg* out, Pool* pool, uint8_t* at, size_t size, Owner* owner) noexcept nogil
# A body of `size` bytes begins, of which the input has not all. `open_end` as in body_open.
cdef int decode_open(
    Codec* c, const Input* input, uint64_t size, bint command, bint open_end) noexcept nogil
# Copies what the input has of it. got == size afterwards: it is whole.
cdef int decode_fill(Body* b, Input* input) noexcept nogil
# CodecOps.direct, filled and under_way.
cdef int decode_direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil
cdef void decode_filled(Codec* self, size_t n) noexcept nogil
cdef uint64_t decode_under_way(const Codec* self) noexcept nogil
