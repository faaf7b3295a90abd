"""Whoever comes to the wrong port: what its first bytes give away. For all handshakes."""

from libc.stdint cimport uint8_t

from mqcore.wire.codec cimport Codec

# n bytes, at least one, are not what the wire `ours` ("ZMTP") begins with: a reason that guesses
# whose they are and says what to do. MQ_PROTOCOL.
cdef int refuse_stranger(Codec* c, const uint8_t* seen, size_t n, const char* ours) noexcept nogil
