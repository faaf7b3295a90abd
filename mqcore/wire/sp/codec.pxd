"""SP over streams: nanomsg's and nng's wire. See codec.pxd for the contract."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from mqcore.wire.codec cimport Codec, CodecOps
from mqcore.wire.sp.join cimport Join

cdef struct Sp:
    Codec head
    bint typed                # a byte 01 stands before each length: unix sockets
    # -- handshake
    bint said                 # our header is in ctl
    uint32_t n_seen
    uint8_t[8] seen           # the peer's header
    # -- decoder
    int stage                 # STAGE_* of sp.pyx
    uint32_t n_hold
    uint8_t[12] hold          # a cut-off length, or a cut-off count of hops
    uint64_t left             # bytes of the message under way that have not been looked at
    uint8_t hops
    # -- encoder, and envelopes both ways
    Join join

# Any thread. Filled once when the module is imported.
cdef const CodecOps* sp_ops() noexcept nogil        # "sp"
cdef const CodecOps* sp_ipc_ops() noexcept nogil    # "sp-ipc"
# The name that nng and nanomsg give a protocol number; NULL: none.
cdef const char* sp_name(int number) noexcept nogil
# May we talk to a socket of that number? Remembers its name. MQ_OK; MQ_PROTOCOL, the reason is set.
cdef int sp_check(Codec* c, int number) noexcept nogil
