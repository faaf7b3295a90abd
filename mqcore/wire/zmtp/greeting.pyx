"""ZMTP's handshake, native and without I/O: greeting and version fallback. What follows the
greeting is NULL's READY (ready.pyx), or a mechanism's commands (plain.pyx, curve.pyx).

The greeting is sent in stages (signature; major; the rest), each when the peer's bytes allow it.
Some peers wait for ours, and older ones must be recognized before too much is sent. A listening
codec sends nothing before the peer's first bytes look like ZMTP.
    ff ........ odd byte, revision 0 or 1   2.0 greeting (12 bytes), then an identity frame
    ff ........ odd byte, other revision    3.x greeting (64 bytes), then READY both ways
    anything else that can be a 1.0 frame   unversioned 1.0 peer: its identity frame is all there is
Peers before 3.0 support no mechanism, so a socket that requires one refuses them and never agrees
on less. Bytes that cannot be one of these are refused at the first byte that proves it, with a
guess at what the peer may be: a wrong port is the most common fault, and users see the reason.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy, memset, strcmp, strlen

from mqcore.base.bytes cimport bytes_append, bytes_fini
from mqcore.base.cursor cimport load_be64, store_be64
from mqcore.base.includes cimport explicit_bzero
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport HandshakeConfig
from mqcore.wire.zmtp.mechanism cimport FRAME_COMMAND, FRAME_LONG, FRAME_MORE, mechanism_frame
from mqcore.wire.zmtp.ready cimport (
    HANDSHAKE_MAX, check_pattern, printable, ready_append, ready_size, refuse, refuse_with,
    take_identity, take_ready,
)
from mqcore.wire.zmtp.security cimport mechanism_name
from mqcore.wire.strangers cimport refuse_stranger

cdef enum:
    STAGE_GREETING = 0
    STAGE_READY = 1
    STAGE_IDENTITY = 2
    STAGE_DONE = 3
    STAGE_MECHANISM = 4

ctypedef const char* Text

cdef Text[12] NAMES = [
    "PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB",
    "STREAM",
]


# -- what we say ----------------------------------------------------------------------------------

cdef int _say(Zmtp* z, int upto) noexcept nogil:
    """Append our greeting from the bytes already sent up to `upto` bytes. Byte 11 differs for old
    peers: 12 stands for the whole 2.0 greeting, 64 for that of 3.x."""
    cdef uint8_t[64] text
    cdef const HandshakeConfig* config = z.head.config
    cdef const char* name = mechanism_name(z.head.security)
    cdef uint64_t length = config.routing_id_size + 1
    cdef int rc
    if z.said >= upto:
        return MQ_OK
    memset(text, 0, 64)
    text[0] = 0xff
    store_be64(&text[1], length)
    text[9] = 0x7f
    text[10] = 3
    text[11] = 1 if upto == GREETING_SIZE else <uint8_t> config.number
    if upto == GREETING_SIZE:
        memcpy(text + 12, name, strlen(name))
        text[32] = z.mechanism != NULL and z.head.security.server
    rc = bytes_append(&z.head.ctl, text + z.said, upto - z.said)
    if rc == MQ_OK:
        z.said = upto
    return rc


cdef int _say_routing_id(Zmtp* z) noexcept nogil:
    cdef const HandshakeConfig* config = z.head.config
    if config.routing_id_size == 0:
        return MQ_OK
    return bytes_append(&z.head.ctl, config.routing_id, config.routing_id_size)


cdef int _say_identity(Zmtp* z) noexcept nogil:
    """Our identity as a frame of the framing agreed on (2.0, or 1.0 after a revision byte)."""
    cdef size_t size = z.head.config.routing_id_size
    cdef uint8_t[10] header
    cdef size_t n = 2
    cdef int rc
    memset(header, 0, 10)
    if z.framing == FRAMING_V2:
        header[1] = <uint8_t> size            # routing ids are at most 255 bytes: the short form
    elif size < 254:
        header[0] = <uint8_t> (size + 1)
    else:
        header[0] = 0xff
        store_be64(&header[1], size + 1)
        n = 10
    rc = bytes_append(&z.head.ctl, header, n)
    return rc if rc else _say_routing_id(z)


cdef int _say_ready(Zmtp* z) noexcept nogil:
    cdef int rc = mechanism_frame(&z.head, FRAME_COMMAND, ready_size(z.head.config))
    return rc if rc else ready_append(z.head.config, &z.head.ctl)


# -- the peer's greeting --------------------------------------------------------------------------

cdef int _refuse_old(Zmtp* z, const char* version) noexcept nogil:
    """Before 3.0 a pattern is a number, or nothing at all: one of a plug-in's own has none."""
    if z.mechanism != NULL and z.head.security.mechanism == 0:
        return refuse_with(&z.head, "the peer speaks ZMTP %s, where nobody can be refused; this "
                           "socket judges its peers%s", version, "")
    if z.mechanism != NULL:
        return refuse_with(&z.head, "the peer speaks ZMTP %s, which has no security; this socket "
                           "demands %s", version, mechanism_name(z.head.security))
    return refuse_with(&z.head, "the peer speaks ZMTP %s, which does not know the pattern %s",
                       version, z.head.config.pattern)


cdef int _unversioned(Zmtp* z) noexcept nogil:
    """A 1.0 peer: what we have seen of it is the header of its identity frame. Our signature is the
    header of ours, in the long form."""
    cdef int rc
    if z.head.config.number < 0 or z.mechanism != NULL:
        return _refuse_old(z, "1.0")
    rc = _say(z, 10)
    if rc == MQ_OK:
        rc = _say_routing_id(z)
    if rc == MQ_OK:
        rc = bytes_append(&z.frame, z.seen, z.n_seen)
    z.framing = FRAMING_V1
    z.head.peer.major = 1
    z.phantom = z.head.config.publishes
    z.stage = STAGE_IDENTITY
    return rc


cdef int _greeting_first(Zmtp* z) noexcept nogil:
    """The first ten bytes."""
    cdef uint8_t first = z.seen[0]
    cdef uint32_t n = z.n_seen
    if first == 0xff:
        if n == 1:
            return _say(z, 10)
        if n < 10:
            return MQ_OK
        if z.seen[9] & 1:
            return _say(z, 11)
        if z.seen[9]:
            return refuse_stranger(&z.head, z.seen, z.n_seen, "ZMTP")
        return _unversioned(z)
    if n == 1:
        return MQ_OK
    if first == 0:                            # no frame of any version: is it the other wire?
        if memcmp(z.seen, b"\x00SP\x00", n) != 0:
            return refuse_stranger(&z.head, z.seen, z.n_seen, "ZMTP")
        if n == 4:
            return refuse(
                &z.head, "the peer speaks SP, but was silent until ZMTP had been spoken here"
                if z.head.either else
                "the peer speaks SP (nanomsg), which this socket does not: say wire=\"sp\" here"
                if z.head.config.sp >= 0 else
                "the peer speaks SP (nanomsg), which this socket does not")
        return MQ_OK
    if z.seen[1] & 0xfe:                      # flags of its identity frame: only MORE is defined
        return refuse_stranger(&z.head, z.seen, z.n_seen, "ZMTP")
    return _unversioned(z)


cdef int _old_greeting(Zmtp* z) noexcept nogil:
    """Twelve bytes are here, and the revision is 0 or 1."""
    cdef uint8_t number = z.seen[11]
    cdef int rc = MQ_OK
    if number < 12:                           # of another type we know no name: as if it said none
        rc = check_pattern(&z.head, <const uint8_t*> NAMES[number], strlen(NAMES[number]))
    z.stage = STAGE_IDENTITY
    return rc if rc else _say_identity(z)


cdef int _mechanism(Zmtp* z) noexcept nogil:
    """One more byte of the mechanism's name, the last one at 32."""
    cdef uint8_t c = z.seen[z.n_seen - 1]
    cdef const char* ours = mechanism_name(z.head.security)
    if c == 0:
        if z.n_seen == 13:
            return refuse(&z.head, "the peer's greeting names no mechanism")
    elif z.n_seen > 13 and z.seen[z.n_seen - 2] == 0 or c <= 32 or c >= 127:
        return refuse(&z.head, "the peer's greeting is malformed: no mechanism's name")
    if z.n_seen < 32:
        return MQ_OK
    # nothing behind the name has come yet, so a zero follows it in any case
    printable(z.head.peer.mechanism, 21, z.seen + 12, strlen(<const char*> (z.seen + 12)))
    if strcmp(z.head.peer.mechanism, ours) == 0:
        return MQ_OK
    return refuse_with(&z.head, "the peer wants mechanism %s, this socket uses %s",
                       z.head.peer.mechanism, ours)


cdef int _greeting_byte(Zmtp* z) noexcept nogil:
    """Look at the byte that has just been added to `seen`."""
    cdef uint32_t n = z.n_seen
    cdef uint8_t revision
    if n <= 10:
        return _greeting_first(z)
    revision = z.seen[10]
    if n == 11:
        if revision > 1:
            z.framing = FRAMING_V3
            return _say(z, GREETING_SIZE)
        if z.head.config.number < 0 or z.mechanism != NULL:
            return _refuse_old(z, "2.0" if revision else "1.0")
        z.framing = FRAMING_V2 if revision else FRAMING_V1
        z.head.peer.major = 2 if revision else 1
        return _say(z, 12)
    if n == 12:
        if revision <= 1:
            return _old_greeting(z)
        z.head.peer.major = 3
        # 3 and minor 0 is 3.0; any other revision and minor is taken for 3.1
        z.head.peer.minor = 0 if revision == 3 and z.seen[11] == 0 else 1
        z.subscribes = z.head.peer.minor == 1
        return MQ_OK
    if n <= 32:
        return _mechanism(z)
    if n < GREETING_SIZE:                     # the filler is never looked at
        return MQ_OK
    if z.mechanism == NULL:
        z.stage = STAGE_READY
        return _say_ready(z)
    if z.seen[32] == 1 and z.head.security.server:    # libzmq's servers say 0, as all clients do
        return refuse(&z.head, "the peer is a server too: one side must be the client, which names "
                      "the server's key, or its own username")
    z.stage = STAGE_MECHANISM
    return z.mechanism.start(&z.head)


# -- frames of the handshake ----------------------------------------------------------------------

cdef int _frame_need(Zmtp* z, size_t* header, uint64_t* need) noexcept nogil:
    """How many bytes the frame has in all, as far as is known; its header's size, 0: unknown."""
    cdef const uint8_t* at = z.frame.at
    cdef size_t n = z.frame.n
    cdef uint64_t size
    header[0] = 0
    need[0] = n + 1
    if n < 2:
        return MQ_OK
    if z.framing == FRAMING_V1:
        header[0] = 10 if at[0] == 0xff else 2
        if n < header[0]:
            header[0] = 0
            return MQ_OK
        size = load_be64(at + 1) if at[0] == 0xff else at[0]
        if size == 0:
            return refuse(&z.head, "the peer sent a frame of length 0")
        size -= 1                             # it counts the flags
    else:
        header[0] = 9 if at[0] & FRAME_LONG else 2
        if n < header[0]:
            header[0] = 0
            return MQ_OK
        size = load_be64(at + 1) if at[0] & FRAME_LONG else at[1]
    if size > HANDSHAKE_MAX:
        return refuse(&z.head, "the peer's handshake is longer than 64 KiB")
    if z.stage == STAGE_MECHANISM and z.step == 0 and size > z.mechanism.hello_max:
        return refuse(&z.head, "the peer sent something longer than a HELLO")
    need[0] = header[0] + size
    return MQ_OK


cdef int _command(Zmtp* z, size_t header, size_t size) noexcept nogil:
    """A mechanism's command is in `frame`. MQ_OK, MQ_NEED_DATA, or it failed."""
    cdef uint8_t flags = z.frame.at[0]
    cdef int rc
    if flags & (FRAME_COMMAND | FRAME_MORE) != FRAME_COMMAND:
        return refuse(&z.head, "the peer sent a message before the handshake was complete")
    rc = z.mechanism.take(&z.head, z.frame.at + header, size)
    explicit_bzero(z.frame.at, z.frame.n)     # PLAIN's has a password
    z.frame.n = 0
    return MQ_OK if rc == MQ_DONE else rc


cdef int _frame(Zmtp* z, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    """Collect one frame and look at it. MQ_OK: the handshake is over; MQ_NEED_DATA."""
    cdef size_t header = 0
    cdef uint64_t need = 0
    cdef size_t take
    cdef int rc
    while True:
        rc = _frame_need(z, &header, &need)
        if rc:
            return rc
        if header and z.frame.n == need:
            break
        take = need - z.frame.n
        if take > n - used[0]:
            take = n - used[0]
        if take == 0:
            return MQ_NEED_DATA
        rc = bytes_append(&z.frame, data + used[0], take)
        if rc:
            return rc
        used[0] += take
    if z.stage == STAGE_READY:
        return take_ready(&z.head, z.frame.at + header, need - header)
    if z.stage == STAGE_MECHANISM:
        return _command(z, header, need - header)
    if need == header:
        return MQ_OK
    return take_identity(&z.head, z.frame.at + header, need - header)


# -- the contract ---------------------------------------------------------------------------------

cdef int greeting_start(Codec* self, bint listening) noexcept nogil:
    """Again with listening = 0, after a grace period, it speaks if it has not yet."""
    return MQ_OK if listening else _say(<Zmtp*> self, 10)


cdef int greeting_feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef int rc = MQ_OK
    used[0] = 0
    while z.stage == STAGE_GREETING:
        if used[0] == n:
            return MQ_NEED_DATA
        z.seen[z.n_seen] = data[used[0]]
        z.n_seen += 1
        used[0] += 1
        rc = _greeting_byte(z)
        if rc:
            return rc
    while z.stage != STAGE_DONE:
        if self.asking and (used[0] == n or not z.mechanism.meanwhile):
            return MQ_NEED_DATA if used[0] == n else refuse(
                self, "the peer went on before it was answered")
        rc = _frame(z, data, n, used)
        if rc == MQ_NEED_DATA and used[0] < n:
            continue
        if rc:
            return rc
        z.stage = STAGE_DONE
        bytes_fini(&z.frame)
    return MQ_DONE
