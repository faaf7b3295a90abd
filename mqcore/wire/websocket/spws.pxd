"""SP over WebSocket. See codec.pxd for the contract."""

from libc.stdint cimport uint8_t, uint32_t

from mqcore.wire.codec cimport CodecOps
from mqcore.wire.sp.join cimport Join
from mqcore.wire.websocket.frames cimport Ws

cdef enum:
    HOP = 4                   # bytes of a count of hops

cdef struct Spws:
    Ws ws
    Join join                 # envelopes both ways
    # -- decoder
    int stage                 # of the message that comes in: spws.pyx
    uint32_t n_front          # bytes that came before the body
    uint8_t[4] hop            # a count of hops
    # -- encoder: of a message in several frames (fragments.pyx)
    bint begun                # its first frame is in the batch, or was in an earlier one
    size_t at                 # bytes of the front part that are, too

# Any thread. Filled once when the module is imported.
cdef const CodecOps* sp_ws_ops() noexcept nogil     # "sp-ws"
