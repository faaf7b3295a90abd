"""No wire at all: the bytes of a connection as they come. See codec.pxd for the contract."""

from mqcore.wire.codec cimport CodecOps

# Any thread. Filled once when the module is imported.
cdef const CodecOps* raw_ops() noexcept nogil       # "raw"
