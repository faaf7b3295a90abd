"""Strangers: see strangers.pxd. A wrong port is the commonest fault of all."""

from libc.string cimport memcmp

from mqcore.wire.zmtp.ready cimport refuse_with

ctypedef const char* Text

cdef Text[11] HTTP = [
    "GET ", "POST", "HEAD", "PUT ", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI ", "HTTP",
]


cdef int refuse_stranger(Codec* c, const uint8_t* seen, size_t n, const char* ours) noexcept nogil:
    cdef size_t i
    if n > 4:
        n = 4
    if c.either:
        ours = "ZMTP or SP"
    if (seen[0] == 0x16 or seen[0] == 0x15) and n > 1 and seen[1] == 0x03:
        return refuse_with(c, "the peer speaks TLS, not %s: "
                           "put tls+ before the transport here, or take it off there%s", ours, "")
    for i in range(11):
        if memcmp(seen, HTTP[i], n) == 0:
            return refuse_with(c, "the peer speaks HTTP or WebSocket, not %s: "
                               "for WebSocket put ws+ before the transport here%s", ours, "")
    if memcmp(seen, b"SSH-", n) == 0:
        return refuse_with(c, "the peer speaks SSH, not %s%s", ours, "")
    if memcmp(seen, b"\x28\xb5\x2f\xfd", n) == 0:
        return refuse_with(c, "the peer speaks zstd, not %s: "
                           "put zstd+ before the transport here, or take it off there%s", ours, "")
    return refuse_with(c, "the peer does not speak %s%s", ours, "")
