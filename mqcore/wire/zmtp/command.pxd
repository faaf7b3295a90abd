"""The commands that may stand between messages: ZMTP's family. For the codecs."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t

from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Owner
from mqcore.wire.codec cimport Codec

cdef enum:
    TTL_MAX = 655             # tenths of a second: some peers compute with 16 bits of ms

# Sends a PONG, `size` bytes of a command without a frame: the frame is the codec's. It sends none
# if too many wait already. MQ_OK, MQ_NOMEM.
ctypedef int (*PongFn)(Codec* c, const uint8_t* pong, size_t size) noexcept nogil


cdef inline const char* interest_name(const Codec* c, bint on) noexcept nogil:
    """The command that says what a peer wants (on), or takes it back; its length first."""
    if c.config.groups:
        return b"\x04JOIN" if on else b"\x05LEAVE"
    return b"\x09SUBSCRIBE" if on else b"\x06CANCEL"


cdef inline uint16_t ping_ttl(uint32_t ttl) noexcept nogil:
    """Milliseconds as a PING's time to live."""
    return <uint16_t> min(ttl // 100 + (1 if ttl % 100 else 0), <uint32_t> TTL_MAX)


# Obeys a whole command: a subscription is handed out (`owner` as in decode_slice), a PING answered
# through `pong`, a PONG counted, any other passed over, as ZMTP asks. MQ_OK; MQ_PROTOCOL with the
# reason set; MQ_NOMEM.
cdef int command_obey(Codec* c, uint8_t* at, size_t size, Owner* owner, Msg* out, size_t* n,
                      PongFn pong) noexcept nogil
