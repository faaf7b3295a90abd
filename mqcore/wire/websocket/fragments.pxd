"""SP messages as WebSocket frames. A message is one frame where it can be. A larger one is several,
since nng closes at a frame above 1 MiB, and parts that are large are not copied together. For the
codec "sp-ws"."""

from libc.stdint cimport uint8_t, uint64_t

from mqcore.base.message cimport Msg
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport Batch, Codec

# CodecOps.head: of a message in one frame.
cdef size_t fragments_head(
    Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil
# JoinFn of encode.pxd.
cdef int fragments_join(Codec* self, Batch* b, YPipe* src, size_t* size) noexcept nogil
# CodecOps.encode_one.
cdef int fragments_one(Codec* self, Batch* b, Msg* part, bint* done) noexcept nogil
