"""ZMTP's batch encoder, all framings. See CodecOps in codec.pxd for the contract."""

from libc.stdint cimport int64_t, uint8_t

from mqcore.base.message cimport Msg
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport Batch, Codec

# Whoever holds the engine's lease. *msgs and *body are set, not added to: what was *completed*, so
# a message that begins in one batch and ends in the next counts in the next.
cdef int zmtp_encode(
    Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil
cdef int zmtp_encode_one(Codec* self, Batch* batch, Msg* part, bint* done) noexcept nogil
