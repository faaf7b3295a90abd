"""SUBSCRIBE and CANCEL (or JOIN and LEAVE), PING, PONG: see command.pxd."""

from libc.string cimport memcmp, memcpy

from mqcore.base.cursor cimport load_be16
from mqcore.base.message cimport MSG_CANCEL, MSG_SUBSCRIBE
from mqcore.base.status cimport MQ_OK
from mqcore.wire.decode cimport decode_slice
from mqcore.wire.zmtp.ready cimport refuse

cdef enum:
    CONTEXT_MAX = 16          # bytes of a PING's context that are echoed


cdef inline bint _named(
        const uint8_t* at, size_t size, const char* name, size_t* skip) noexcept nogil:
    """Is it this command? *skip: where what it names begins."""
    skip[0] = <size_t> name[0] + 1
    return size >= skip[0] and memcmp(at, name, skip[0]) == 0


cdef int _interest(Codec* c, uint8_t* at, size_t size, uint8_t kind, Owner* owner, Msg* out,
                   size_t* n) noexcept nogil:
    """A subscription, or the end of one; the topic is at `at`."""
    cdef int rc
    if c.mid_in:
        return refuse(c, "the peer sent a subscription in the middle of a message")
    rc = decode_slice(&out[n[0]], c.pool, at, size, owner)
    if rc == MQ_OK:
        out[n[0]].flags = kind
        n[0] += 1
    return rc


cdef int _ping(Codec* c, const uint8_t* at, size_t size, PongFn pong) noexcept nogil:
    cdef uint8_t[5 + CONTEXT_MAX] answer
    cdef size_t context
    if size < 7:
        return refuse(c, "the peer sent a PING without its time to live")
    c.pings += 1
    c.peer_ttl = load_be16(at + 5) * <uint32_t> 100
    context = min(size - 7, <size_t> CONTEXT_MAX)
    memcpy(answer, b"\x04PONG", 5)
    memcpy(&answer[5], at + 7, context)
    return pong(c, answer, 5 + context)


cdef int command_obey(Codec* c, uint8_t* at, size_t size, Owner* owner, Msg* out, size_t* n,
                      PongFn pong) noexcept nogil:
    cdef size_t skip = 0
    if _named(at, size, interest_name(c, True), &skip):
        return _interest(c, at + skip, size - skip, MSG_SUBSCRIBE, owner, out, n)
    if _named(at, size, interest_name(c, False), &skip):
        return _interest(c, at + skip, size - skip, MSG_CANCEL, owner, out, n)
    if _named(at, size, b"\x04PING", &skip):
        return _ping(c, at, size, pong)
    if _named(at, size, b"\x04PONG", &skip):
        c.pongs += 1
    return MQ_OK
