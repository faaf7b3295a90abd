"""The codec of ZMTP behind CURVE: `zmtp` with each part sealed. It needs libsodium, and
`Codec.security`."""

from mqcore.wire.codec cimport CodecOps

# Any thread. Filled once when the module is imported.
cdef const CodecOps* zmtp_curve_ops() noexcept nogil
