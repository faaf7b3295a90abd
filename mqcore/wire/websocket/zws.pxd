"""The codec of ZMTP over WebSocket messages: ZWS 2.0 (RFC 45). See codec.pxd for the contract."""

from mqcore.wire.codec cimport CodecOps

# Any thread. Filled once when the module is imported. The first for the subprotocol "ZWS2.0/NULL",
# the second for plain "ZWS2.0", which has no READY: a routing id comes first.
cdef const CodecOps* zws_ops() noexcept nogil
cdef const CodecOps* zws_bare_ops() noexcept nogil
