"""SUBSCRIBE and CANCEL (or JOIN and LEAVE), PING, PONG: see command.pxd. Others are passed over, as
ZMTP asks."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from mqcore.base.cursor cimport load_be16
from mqcore.base.message cimport MSG_CANCEL, MSG_SUBSCRIBE
from mqcore.base.status cimport MQ_OK
from mqcore.wire.ready cimport refuse


cdef inline bint _named(
        const uint8_t* at, size_t size, const char* name, size_t* skip) noexcept nogil:
    """Is it this command? *skip: where what it names begins."""
    skip[0] = <size_t> name[0] + 1
    return size >= skip[0] and memcmp(at, name, skip[0]) == 0


cdef int command_read(
        Codec* c, const uint8_t* at, size_t size, bint mid, Command* out) noexcept nogil:
    cdef size_t context
    out.kind = 0
    out.pong_size = 0
    if _named(at, size, interest_name(c, True), &out.skip):
        out.kind = MSG_SUBSCRIBE
    elif _named(at, size, interest_name(c, False), &out.skip):
        out.kind = MSG_CANCEL
    elif size >= 5 and memcmp(at, b"\x04PING", 5) == 0:
        if size < 7:
            return refuse(c, "the peer sent a PING without its time to live")
        c.pings += 1
        c.peer_ttl = load_be16(at + 5) * <uint32_t> 100
        context = min(size - 7, <size_t> PONG_MAX - 5)
        memcpy(out.pong, b"\x04PONG", 5)
        memcpy(out.pong + 5, at + 7, context)
        out.pong_size = 5 + context
    elif size >= 5 and memcmp(at, b"\x04PONG", 5) == 0:
        c.pongs += 1
    if out.kind and mid:
        return refuse(c, "the peer sent a subscription in the middle of a message")
    return MQ_OK
