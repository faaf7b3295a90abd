"""The codec of SP over WebSocket messages, as nng and nanomsg map it. See codec.pxd for the
contract, spws.pyx for the wire."""

from mqcore.wire.codec cimport CodecOps

# Any thread. Filled once when the module is imported.
cdef const CodecOps* sp_ws_ops() noexcept nogil     # "sp-ws"
