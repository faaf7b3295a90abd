"""NULL's READY command: ours as bytes, the peer's checked and remembered. And texts for refusals.

Nothing of the peer's is believed before all its properties have proved well-formed; its texts go
into a reason only as printable characters.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, strcmp, strlen, strstr

from mqcore.base.bytes cimport bytes_append
from mqcore.base.cursor cimport (
    Cursor, cursor_be32, cursor_bytes, cursor_init, cursor_left, cursor_u8, store_be32,
)
from mqcore.base.status cimport MQ_OK, MQ_PROTOCOL
from mqcore.wire.zmtp.security cimport CURVE


# -- reasons --------------------------------------------------------------------------------------

cdef int refuse(Codec* c, const char* reason) noexcept nogil:
    c.reason = reason
    return MQ_PROTOCOL


cdef int refuse_with(Codec* c, const char* form, const char* a, const char* b) noexcept nogil:
    """A reason composed of two texts."""
    snprintf(c.reason_text, sizeof(c.reason_text), form, a, b)
    c.reason = c.reason_text
    return MQ_PROTOCOL


cdef void printable(char* out, size_t cap, const uint8_t* data, size_t size) noexcept nogil:
    """A peer's bytes as text that is safe to show, cut to what fits."""
    cdef size_t i
    cdef size_t n = size if size < cap else cap - 1
    for i in range(n):
        out[i] = <char> data[i] if 32 <= data[i] < 127 else 63
    out[n] = 0


# -- ours ------------------------------------------------------------------------------------------

cdef int _say_property(Bytes* out, const char* name, const uint8_t* value, size_t n) noexcept nogil:
    cdef uint8_t[4] number
    cdef uint8_t name_size = <uint8_t> strlen(name)
    cdef int rc = bytes_append(out, &name_size, 1)
    store_be32(number, <uint32_t> n)
    if rc == MQ_OK:
        rc = bytes_append(out, name, name_size)
    if rc == MQ_OK:
        rc = bytes_append(out, number, 4)
    if rc == MQ_OK and n:
        rc = bytes_append(out, value, n)
    return rc


cdef size_t properties_size(const HandshakeConfig* config) noexcept nogil:
    cdef size_t size = 16 + strlen(config.pattern) + config.metadata_size
    return size + 13 + config.routing_id_size if config.announce_id else size


cdef size_t ready_size(const HandshakeConfig* config) noexcept nogil:
    return 6 + properties_size(config)


cdef int ready_append(const HandshakeConfig* config, Bytes* out) noexcept nogil:
    cdef int rc = bytes_append(out, b"\x05READY", 6)
    return rc if rc else properties_append(config, out)


cdef int properties_append(const HandshakeConfig* config, Bytes* out) noexcept nogil:
    cdef int rc = _say_property(out, "Socket-Type", <const uint8_t*> config.pattern,
                                strlen(config.pattern))
    if rc == MQ_OK and config.announce_id:
        rc = _say_property(out, "Identity", config.routing_id, config.routing_id_size)
    if rc == MQ_OK and config.metadata_size:
        rc = bytes_append(out, config.metadata, config.metadata_size)
    return rc


# -- the peer's READY -----------------------------------------------------------------------------

cdef bint _named(const uint8_t* name, size_t size, const char* lower) noexcept nogil:
    """Property names are compared without regard to case."""
    cdef size_t i
    if size != strlen(lower):
        return False
    for i in range(size):
        if (name[i] | 0x20 if 65 <= name[i] <= 90 else name[i]) != <uint8_t> lower[i]:
            return False
    return True


cdef int check_pattern(Codec* c, const uint8_t* name, size_t size) noexcept nogil:
    """May we talk to a socket of this type? Remembers it."""
    cdef char[40] padded
    cdef size_t i
    cdef size_t cap = sizeof(c.peer.pattern)
    cdef bint fits = 0 < size < cap
    printable(c.peer.pattern, cap, name, size)
    for i in range(size if fits else 0):
        fits = fits and 32 < name[i] < 127    # a space would match in the middle of the list
    if fits:
        snprintf(padded, sizeof(padded), " %s ", c.peer.pattern)
        if strstr(c.config.peers, padded) != NULL:
            return MQ_OK
    return refuse_with(c, "the peer is a %s socket, which does not fit %s",
                       c.peer.pattern, c.config.pattern)


cdef int take_identity(Codec* c, const uint8_t* id, size_t size) noexcept nogil:
    return MQ_OK if c.peer.routing_id.n else bytes_append(&c.peer.routing_id, id, size)


cdef int take_properties(
        Codec* c, const char* name, const uint8_t* data, size_t size) noexcept nogil:
    """All of them must be well-formed before any is believed. Of duplicates the first wins."""
    cdef Cursor r
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef const uint8_t* pattern = NULL
    cdef const uint8_t* identity = NULL
    cdef size_t name_size
    cdef size_t value_size
    cdef size_t pattern_size = 0
    cdef size_t identity_size = 0
    cdef int rc = MQ_OK
    cursor_init(&r, data, size)
    while cursor_left(&r):
        name_size = cursor_u8(&r)
        key = cursor_bytes(&r, name_size)
        value_size = cursor_be32(&r)
        value = cursor_bytes(&r, value_size)
        if r.bad:
            return refuse_with(c, "the peer's %s is malformed%s", name, "")
        if pattern == NULL and _named(key, name_size, "socket-type"):
            pattern = value
            pattern_size = value_size
        elif identity == NULL and _named(key, name_size, "identity"):
            identity = value
            identity_size = value_size
    if pattern != NULL:                       # a peer that does not say is believed to fit
        rc = check_pattern(c, pattern, pattern_size)
    if rc == MQ_OK and identity_size:
        rc = take_identity(c, identity, identity_size)
    if rc == MQ_OK and size:
        rc = bytes_append(&c.peer.metadata, data, size)
    return rc


cdef int take_ready(Codec* c, const uint8_t* body, size_t size) noexcept nogil:
    if size >= 6 and memcmp(body, b"\x05READY", 6) == 0:
        return take_properties(c, "READY", body + 6, size - 6)
    return refuse_command(c, "READY", body, size)


cdef const char* _meaning(const Codec* c, const char* status) noexcept nogil:
    """What an ERROR says by the numbers of ZAP (RFC 27)."""
    if c.security == NULL or c.security.mechanism == 0:
        return ""
    if strcmp(status, "400") == 0:
        return (" (it does not accept our key)" if c.security.mechanism == CURVE
                else " (it does not accept our username and password)")
    if strcmp(status, "300") == 0:
        return " (not now)"
    if strcmp(status, "500") == 0:
        return " (its authenticator failed)"
    return ""


cdef int refuse_command(
        Codec* c, const char* wanted, const uint8_t* body, size_t size) noexcept nogil:
    cdef char[64] text
    cdef size_t n
    if size >= 6 and memcmp(body, b"^RROR", 5) == 0 and body[5] == size - 6:  # libzmq's PLAIN, 4.3
        printable(text, sizeof(text), body + 6, size - 6)
        return refuse_with(c, "the peer refused: %s%s", text, _meaning(c, text))
    if size >= 7 and memcmp(body, b"\x05ERROR", 6) == 0 and body[6] == size - 7:
        printable(text, sizeof(text), body + 7, size - 7)
        return refuse_with(c, "the peer refused: %s%s", text, _meaning(c, text))
    n = body[0] if size and body[0] < size else 0
    if n == 0:
        return refuse_with(c, "the peer sent something else than %s%s", wanted, "")
    printable(text, sizeof(text), body + 1, n)
    return refuse_with(c, "the peer sent %s instead of %s", text, wanted)
