"""The ZMTP codec: 3.1, 3.0, 2.0 and 1.0 peers, NULL mechanism. See codec.pxd for the contract."""

from mqcore.wire.codec cimport CodecOps

# Any thread. Filled once when the module is imported.
cdef const CodecOps* zmtp_ops() noexcept nogil
