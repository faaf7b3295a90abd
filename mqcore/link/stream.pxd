"""The pump of a stream: bytes of a descriptor into messages and back.

Called by whoever holds the engine's lease.
"""

from mqcore.link.engine cimport Engine

cdef void stream_read(Engine* e) noexcept nogil
cdef void stream_write(Engine* e) noexcept nogil
