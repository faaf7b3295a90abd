"""NULL's READY command, and how the handshake words a refusal. For greeting.pyx alone."""

from libc.stdint cimport uint8_t

from mqcore.wire.greeting cimport Zmtp

# Whoever holds the engine's lease. The refusals return MQ_PROTOCOL with the reason set.
cdef int refuse(Zmtp* z, const char* reason) noexcept nogil
cdef int refuse_with(Zmtp* z, const char* form, const char* a, const char* b) noexcept nogil
cdef void printable(char* out, size_t cap, const uint8_t* data, size_t size) noexcept nogil
# May we talk to a socket of that type? Remembers it. MQ_OK, MQ_PROTOCOL.
cdef int check_pattern(Zmtp* z, const uint8_t* name, size_t size) noexcept nogil
# Append our READY to ctl. MQ_OK, MQ_NOMEM.
cdef int say_ready(Zmtp* z) noexcept nogil
# The body of the peer's first command. MQ_OK, MQ_PROTOCOL, MQ_NOMEM.
cdef int take_ready(Zmtp* z, const uint8_t* body, size_t size) noexcept nogil
