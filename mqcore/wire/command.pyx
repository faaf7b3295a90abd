"""SUBSCRIBE, CANCEL, PING, PONG: see command.pxd. Others are passed over, as ZMTP asks."""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy

from mqcore.base.cursor cimport load_be16
from mqcore.base.message cimport MSG_CANCEL, MSG_SUBSCRIBE
from mqcore.base.status cimport MQ_OK
from mqcore.wire.ready cimport refuse


cdef int command_read(
        Codec* c, const uint8_t* at, size_t size, bint mid, Command* out) noexcept nogil:
    cdef size_t context
    out.kind = 0
    out.pong_size = 0
    if size >= 10 and memcmp(at, b"\x09SUBSCRIBE", 10) == 0:
        out.kind = MSG_SUBSCRIBE
        out.skip = 10
    elif size >= 7 and memcmp(at, b"\x06CANCEL", 7) == 0:
        out.kind = MSG_CANCEL
        out.skip = 7
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
