"""The ZMTP codec: 3.1, 3.0, 2.0 and 1.0 peers, the mechanisms NULL and PLAIN. See codec.pxd for the
contract."""

from libc.stdint cimport uint8_t, uint64_t

from mqcore.wire.codec cimport Codec, CodecOps

# Any thread. Filled once when the module is imported.
cdef const CodecOps* zmtp_ops() noexcept nogil
# For codecs whose struct begins with a Zmtp.
cdef int zmtp_direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil
cdef void zmtp_filled(Codec* self, size_t n) noexcept nogil
cdef void zmtp_fini(Codec* self) noexcept nogil
