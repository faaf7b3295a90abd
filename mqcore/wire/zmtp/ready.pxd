"""NULL's READY command, and how a handshake words a refusal. For the codecs of ZMTP's family."""

from libc.stdint cimport uint8_t

from mqcore.base.bytes cimport Bytes
from mqcore.wire.codec cimport Codec, HandshakeConfig

cdef enum:
    HANDSHAKE_MAX = 64 * 1024 # a longer READY or identity is refused

# For the holder of the engine's lease. The refusals return MQ_PROTOCOL with the reason set.
cdef int refuse(Codec* c, const char* reason) noexcept nogil
cdef int refuse_with(Codec* c, const char* form, const char* a, const char* b) noexcept nogil
cdef void printable(char* out, size_t cap, const uint8_t* data, size_t size) noexcept nogil
# May we talk to a socket of that type? Remembers it. MQ_OK, MQ_PROTOCOL.
cdef int check_pattern(Codec* c, const uint8_t* name, size_t size) noexcept nogil
# Our READY, without a frame around it: how long it is, and appended to out. MQ_OK, MQ_NOMEM.
cdef size_t ready_size(const HandshakeConfig* config) noexcept nogil
cdef int ready_append(const HandshakeConfig* config, Bytes* out) noexcept nogil
# The same without the command's name in front: what other mechanisms box, or send elsewhere.
cdef size_t properties_size(const HandshakeConfig* config) noexcept nogil
cdef int properties_append(const HandshakeConfig* config, Bytes* out) noexcept nogil
# The body of the peer's first command. MQ_OK, MQ_PROTOCOL, MQ_NOMEM.
cdef int take_ready(Codec* c, const uint8_t* body, size_t size) noexcept nogil
# The peer's properties; `name`: of the command that they are in. The same.
cdef int take_properties(
    Codec* c, const char* name, const uint8_t* data, size_t size) noexcept nogil
# The routing id that the peer announces, unless it goes by another. MQ_OK, MQ_NOMEM.
cdef int take_identity(Codec* c, const uint8_t* id, size_t size) noexcept nogil
# A command of the peer's that is not `wanted`: ERROR, or out of place. MQ_PROTOCOL.
cdef int refuse_command(
    Codec* c, const char* wanted, const uint8_t* body, size_t size) noexcept nogil
