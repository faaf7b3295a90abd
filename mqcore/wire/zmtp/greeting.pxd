"""The state of one ZMTP codec, and its handshake (greeting, version fallback, commands).

`Zmtp` is shared by the modules of the codec: greeting.pyx fills the first part, codec.pyx (decoder)
and encode.pyx the others. No other module uses its fields.
"""

from libc.stdint cimport uint8_t, uint32_t

from mqcore.base.bytes cimport Bytes
from mqcore.wire.codec cimport Codec
from mqcore.wire.zmtp.mechanism cimport MechanismOps

cdef enum:
    FRAMING_V1 = 1            # length flags body: 1.0 peers
    FRAMING_V2 = 2            # flags length body, no commands: 2.0 peers
    FRAMING_V3 = 3            # the same with commands: 3.x peers

cdef enum:
    HEADER_MAX = 10           # of any framing
    GREETING_SIZE = 64

cdef struct Zmtp:
    Codec head
    const MechanismOps* mechanism     # NULL: ZMTP's NULL
    int step                  # of the mechanism
    # -- handshake: greeting.pyx
    int stage                 # STAGE_* of greeting.pyx
    int said                  # bytes of the greeting that are in ctl: 0, 10, 11, 12 or 64
    uint32_t n_seen
    uint8_t[64] seen          # the peer's greeting
    Bytes frame               # its next command, or its identity frame, header included, as far
                              # as it is here
    # -- what was agreed
    int framing
    bint subscribes           # it understands SUBSCRIBE and CANCEL commands: 3.1
    bint phantom              # an unversioned peer of a publisher: one empty subscription is due
    # -- decoder: codec.pyx
    uint32_t n_hold
    uint8_t[16] hold          # a cut-off frame header
    uint8_t flags             # of the frame whose body is under way


# Any thread that holds the engine's lease. See CodecOps for what they return.
cdef int greeting_start(Codec* self, bint listening) noexcept nogil
cdef int greeting_feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil
