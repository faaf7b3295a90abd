"""Peers on the wrong port: what their first bytes reveal. For all handshakes."""

from libc.stdint cimport uint8_t

from mqcore.wire.codec cimport Codec

# The n bytes (at least one) are not the beginning of `ours` ("ZMTP"): set a reason that guesses the
# peer's protocol and says what to do. MQ_PROTOCOL.
cdef int refuse_stranger(Codec* c, const uint8_t* seen, size_t n, const char* ours) noexcept nogil
