"""The commands that may stand between messages: ZMTP's family. For decoders."""

from libc.stdint cimport uint8_t

from mqcore.wire.codec cimport Codec

cdef enum:
    PONG_MAX = 5 + 16         # a PING's context is echoed up to 16 bytes

cdef struct Command:
    uint8_t kind              # MSG_SUBSCRIBE or MSG_CANCEL, the topic from `skip` on; 0: neither
    size_t skip
    size_t pong_size          # an answer to send; 0: none
    uint8_t[21] pong


cdef inline const char* interest_name(const Codec* c, bint on) noexcept nogil:
    """The command that says what a peer wants (on), or takes it back; its length first."""
    if c.config.groups:
        return b"\x04JOIN" if on else b"\x05LEAVE"
    return b"\x09SUBSCRIBE" if on else b"\x06CANCEL"


# A whole command. `mid`: it came in the middle of a message. Counts PINGs and PONGs. MQ_OK;
# MQ_PROTOCOL with the reason set.
cdef int command_read(
    Codec* c, const uint8_t* at, size_t size, bint mid, Command* out) noexcept nogil
