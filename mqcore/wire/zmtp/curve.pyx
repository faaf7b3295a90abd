"""CURVE's handshake (RFC 26). Notation: C, c and S, s are the long-term keys of client and server,
public keys in capitals. C', c' and S', s' are those of this connection. box(A->B) is encrypted with
the key that A's secret and B's public key share.

    client  HELLO     C', box(C'->S) of zeros: proves that the client knows S
    server  WELCOME   box(S->C') of S' and a cookie: C' and s', encrypted with a key of the server's
    client  INITIATE  the cookie, box(C'->S') of C, vouch, properties
                      vouch: box(C->S') of C' and S: the owner of c vouches for C'
    server  READY     box(S'->C') of properties, or ERROR 400

The server reveals nothing before INITIATE and does not know the client before. So it refuses data
that it cannot decrypt without a reply, with a reason in its own events. The cookie's key belongs to
this connection and is forgotten when the cookie has returned.

Each side counts its commands, and the count is part of each nonce. So no nonce occurs twice under
one key. The peer's count must grow, so that a third party cannot replay anything.
"""

from libc.string cimport memcmp, memcpy, memset

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini
from mqcore.base.cursor cimport load_be64, store_be64
from mqcore.base.includes cimport explicit_bzero
from mqcore.base.sodium cimport KEY, MAC, NONCE
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport ASKING_NOT, Codec, Verdict
from mqcore.wire.zmtp.mechanism cimport (
    FRAME_COMMAND, mechanism_ask, mechanism_frame, mechanism_refuse,
)
from mqcore.wire.zmtp.ready cimport (
    properties_append, properties_size, refuse, refuse_command, take_properties,
)
from mqcore.wire.zmtp.security cimport key_fits, same_bytes

cdef enum:                    # Zmtp.step: the command that is due
    HELLO = 0
    WELCOME = 1
    INITIATE = 2
    READY = 3

cdef enum:                    # sizes of commands, properties not counted
    HELLO_SIZE = 200
    WELCOME_SIZE = 168
    INITIATE_SIZE = 257
    READY_SIZE = 30
    VOUCH = 80


cdef void curve_nonce(uint8_t* out, const char* text, uint64_t number) noexcept nogil:
    memcpy(out, text, 16)
    store_be64(out + 16, number)


cdef void _long_nonce(uint8_t* out, const char* text, const uint8_t* random) noexcept nogil:
    """The other form: 8 bytes of text and 16 at random."""
    memcpy(out, text, 8)
    memcpy(out + 8, random, 16)


cdef void curve_forget(Curve* c) noexcept nogil:
    explicit_bzero(c.secret, KEY)
    explicit_bzero(c.first, KEY)
    explicit_bzero(c.cookie_key, KEY)
    explicit_bzero(c.key, KEY)


cdef void _agreed(Curve* c) noexcept nogil:
    """The traffic's key is there: what led to it is not needed any more."""
    explicit_bzero(c.secret, KEY)
    explicit_bzero(c.first, KEY)
    explicit_bzero(c.cookie_key, KEY)


# -- the client ------------------------------------------------------------------------------------

cdef int _start(Codec* self) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef uint8_t[HELLO_SIZE] hello
    cdef uint8_t[NONCE] nonce
    cdef uint8_t[64] zeros
    cdef int rc
    if self.security.server:
        c.z.step = HELLO
        return MQ_OK
    c.z.step = WELCOME
    self.leaving = ("the peer left when it had read our HELLO: server_key is probably not its "
                    "public key")
    c.na.keypair(c.public, c.secret)
    if c.na.before(c.first, self.security.server_key, c.secret):
        return refuse(self, "server_key is no public key")
    memset(hello, 0, HELLO_SIZE)
    memset(zeros, 0, 64)
    memcpy(hello, b"\x05HELLO\x01", 7)
    memcpy(&hello[80], c.public, KEY)
    c.said = 1
    store_be64(&hello[112], c.said)
    curve_nonce(nonce, "CurveZMQHELLO---", c.said)
    c.na.box(&hello[120], zeros, 64, nonce, c.first)
    rc = mechanism_frame(self, FRAME_COMMAND, HELLO_SIZE)
    return rc if rc else bytes_append(&self.ctl, hello, HELLO_SIZE)


cdef int _vouch(Curve* c, uint8_t* out, const uint8_t* random) noexcept nogil:
    """box(C->S') of C' and S."""
    cdef uint8_t[2 * KEY] text
    cdef uint8_t[NONCE] nonce
    cdef uint8_t[KEY] shared
    memcpy(text, c.public, KEY)
    memcpy(&text[KEY], c.z.head.security.server_key, KEY)
    _long_nonce(nonce, "VOUCH---", random)
    if c.na.before(shared, c.peer, c.z.head.security.secret):
        return refuse(&c.z.head, "the peer's key is no public key")
    c.na.box(out, text, 2 * KEY, nonce, shared)
    explicit_bzero(shared, KEY)
    return MQ_OK


cdef int _initiate(Curve* c, const uint8_t* cookie) noexcept nogil:
    cdef Codec* head = &c.z.head
    cdef Bytes text
    cdef uint8_t[16 + VOUCH] vouch
    cdef uint8_t[NONCE] nonce
    cdef uint8_t[8] number
    cdef int rc
    text.at = NULL
    text.n = text.cap = 0
    c.na.random(vouch, 16)
    rc = _vouch(c, &vouch[16], vouch)
    if rc == MQ_OK:
        rc = bytes_append(&text, head.security.public, KEY)
    if rc == MQ_OK:
        rc = bytes_append(&text, vouch, 16 + VOUCH)
    if rc == MQ_OK:
        rc = properties_append(head.config, &text)
    if rc == MQ_OK:
        rc = mechanism_frame(head, FRAME_COMMAND, 113 + MAC + text.n)
    if rc == MQ_OK:
        c.said += 1
        store_be64(number, c.said)
        curve_nonce(nonce, "CurveZMQINITIATE", c.said)
        bytes_append(&head.ctl, "\x08INITIATE", 9)
        bytes_append(&head.ctl, cookie, COOKIE)
        bytes_append(&head.ctl, number, 8)
        c.na.box(head.ctl.at + head.ctl.n, text.at, text.n, nonce, c.key)  # there is space
        head.ctl.n += MAC + text.n
    bytes_fini(&text)
    return rc if rc else MQ_NEED_DATA


cdef int _welcome(Codec* self, const uint8_t* body, size_t size) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef uint8_t[KEY + COOKIE] text
    cdef uint8_t[NONCE] nonce
    if size >= 6 and memcmp(body, b"\x05HELLO", 6) == 0:
        return refuse(self, "the peer is a client too: one side must be the server, which names "
                      "no server_key")
    if size < 8 or memcmp(body, b"\x07WELCOME", 8) != 0:
        return refuse_command(self, "WELCOME", body, size)
    if size != WELCOME_SIZE:
        return refuse(self, "the peer's WELCOME has not the length of one")
    _long_nonce(nonce, "WELCOME-", body + 8)
    if c.na.open(text, body + 24, MAC + KEY + COOKIE, nonce, c.first):
        return refuse(self, "the peer's WELCOME does not open: the peer has not the secret key "
                      "that belongs to server_key")
    memcpy(c.peer, text, KEY)
    if c.na.before(c.key, c.peer, c.secret):
        return refuse(self, "the peer's WELCOME has no public key")
    _agreed(c)
    c.z.step = READY
    self.leaving = ("the peer left when it had read our INITIATE: it does not accept our key, or "
                    "our pattern does not fit")
    return _initiate(c, &text[KEY])


cdef int _ready(Codec* self, uint8_t* body, size_t size) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef uint8_t[NONCE] nonce
    cdef int rc
    if size < 6 or memcmp(body, b"\x05READY", 6) != 0:
        return refuse_command(self, "READY", body, size)
    if size < READY_SIZE:
        return refuse(self, "the peer's READY is too short")
    c.heard = load_be64(body + 6)
    curve_nonce(nonce, "CurveZMQREADY---", c.heard)
    if c.heard == 0 or c.na.unseal(body + READY_SIZE, body + READY_SIZE, body + 14,
                                   size - READY_SIZE, nonce, c.key):
        return refuse(self, "the peer's READY does not open: forged or damaged")
    rc = bytes_append(&self.peer.proof, self.security.server_key, KEY)
    if rc == MQ_OK:
        rc = take_properties(self, "READY", body + READY_SIZE, size - READY_SIZE)
    return rc if rc else MQ_DONE


# -- the server ------------------------------------------------------------------------------------

cdef int _hello(Codec* self, const uint8_t* body, size_t size) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef uint8_t[64] zeros
    cdef uint8_t[NONCE] nonce
    if size < 6 or memcmp(body, b"\x05HELLO", 6) != 0:
        return refuse_command(self, "HELLO", body, size)
    if size != HELLO_SIZE:
        return refuse(self, "the peer's HELLO has not the length of one")
    if body[6] != 1 or body[7] != 0:
        return refuse(self, "the peer's HELLO is of another version of CURVE")
    memcpy(c.peer, body + 80, KEY)
    c.heard = load_be64(body + 112)
    curve_nonce(nonce, "CurveZMQHELLO---", c.heard)
    if c.na.before(c.first, c.peer, self.security.secret):
        return refuse(self, "the peer's HELLO has no public key")
    if c.na.open(zeros, body + 120, MAC + 64, nonce, c.first):
        return refuse(self, "the peer's HELLO does not open: its server_key is not our public key")
    return _say_welcome(c)


cdef int _say_welcome(Curve* c) noexcept nogil:
    cdef Codec* head = &c.z.head
    cdef uint8_t[WELCOME_SIZE] welcome
    cdef uint8_t[KEY + COOKIE] text
    cdef uint8_t[2 * KEY] cookie
    cdef uint8_t[NONCE] nonce
    cdef int rc = mechanism_frame(head, FRAME_COMMAND, WELCOME_SIZE)
    if rc:
        return rc
    c.na.keypair(c.public, c.secret)
    c.na.random(c.cookie_key, KEY)
    memcpy(text, c.public, KEY)
    memcpy(cookie, c.peer, KEY)
    memcpy(&cookie[KEY], c.secret, KEY)
    c.na.random(&text[KEY], 16)
    _long_nonce(nonce, "COOKIE--", &text[KEY])
    c.na.box(&text[KEY + 16], cookie, 2 * KEY, nonce, c.cookie_key)
    explicit_bzero(cookie, 2 * KEY)
    memcpy(welcome, b"\x07WELCOME", 8)
    c.na.random(&welcome[8], 16)
    _long_nonce(nonce, "WELCOME-", &welcome[8])
    c.na.box(&welcome[24], text, KEY + COOKIE, nonce, c.first)
    c.z.step = INITIATE
    rc = bytes_append(&head.ctl, welcome, WELCOME_SIZE)
    return rc if rc else MQ_NEED_DATA


cdef bint _cookie_fits(Curve* c, const uint8_t* cookie) noexcept nogil:
    """Ours, and of this connection. Its key has done its work."""
    cdef uint8_t[2 * KEY] text
    cdef uint8_t[NONCE] nonce
    cdef bint fits
    _long_nonce(nonce, "COOKIE--", cookie)
    fits = c.na.open(text, cookie + 16, MAC + 2 * KEY, nonce, c.cookie_key) == 0
    explicit_bzero(c.cookie_key, KEY)
    if fits:
        fits = same_bytes(text, c.peer, KEY) & same_bytes(&text[KEY], c.secret, KEY)
    explicit_bzero(text, 2 * KEY)
    return fits


cdef bint _vouched(Curve* c, const uint8_t* key, const uint8_t* vouch) noexcept nogil:
    """Has the owner of the long-term key vouched for this connection with us?"""
    cdef uint8_t[2 * KEY] text
    cdef uint8_t[NONCE] nonce
    cdef uint8_t[KEY] shared
    cdef bint fits = False
    _long_nonce(nonce, "VOUCH---", vouch)
    if c.na.before(shared, key, c.secret) == 0:
        fits = c.na.open(text, vouch + 16, VOUCH, nonce, shared) == 0
        explicit_bzero(shared, KEY)
    if fits:
        fits = (same_bytes(text, c.peer, KEY)
                & same_bytes(&text[KEY], c.z.head.security.public, KEY))
    return fits


cdef int _take_initiate(Codec* self, uint8_t* body, size_t size) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef uint8_t* text = body + 113 + MAC         # C, vouch's nonce, vouch, properties
    cdef uint64_t number
    cdef uint8_t[NONCE] nonce
    cdef int rc
    if size < 9 or memcmp(body, b"\x08INITIATE", 9) != 0:
        return refuse_command(self, "INITIATE", body, size)
    if size < INITIATE_SIZE:
        return refuse(self, "the peer's INITIATE is too short")
    if not _cookie_fits(c, body + 9):
        return refuse(self, "the peer's INITIATE has a cookie that is not this connection's: "
                      "replayed or forged")
    number = load_be64(body + 105)
    if number <= c.heard:
        return refuse(self, "the peer's INITIATE has a nonce that does not grow: replayed")
    c.heard = number
    if c.na.before(c.key, c.peer, c.secret):
        return refuse(self, "the peer's key is no public key")
    curve_nonce(nonce, "CurveZMQINITIATE", number)
    if c.na.unseal(text, text, body + 113, size - 113 - MAC, nonce, c.key):
        return refuse(self, "the peer's INITIATE does not open: forged or damaged")
    if not _vouched(c, text, text + KEY):
        return refuse(self, "the peer's vouch is not for this connection: it has not the secret "
                      "key of the public one it shows")
    _agreed(c)
    rc = bytes_append(&self.peer.proof, text, KEY)
    if rc == MQ_OK:
        rc = take_properties(self, "INITIATE", body + INITIATE_SIZE, size - INITIATE_SIZE)
    if rc:
        return rc
    if self.security.asks:
        return mechanism_ask(self)
    if not key_fits(self.security, self.peer.proof.at):
        return mechanism_refuse(self, 400, "its key is not among those allowed", False)
    return _say_ready(c)


cdef int _say_ready(Curve* c) noexcept nogil:
    cdef Codec* head = &c.z.head
    cdef size_t size = properties_size(head.config)
    cdef uint8_t[NONCE] nonce
    cdef uint8_t[8] number
    cdef uint8_t* text
    cdef int rc = mechanism_frame(head, FRAME_COMMAND, READY_SIZE + size)
    if rc:
        return rc
    c.said += 1
    store_be64(number, c.said)
    curve_nonce(nonce, "CurveZMQREADY---", c.said)
    bytes_append(&head.ctl, "\x05READY", 6)
    bytes_append(&head.ctl, number, 8)
    head.ctl.n += MAC
    properties_append(head.config, &head.ctl)
    text = head.ctl.at + head.ctl.n - size
    c.na.seal(text, text - MAC, text, size, nonce, c.key)
    return MQ_DONE


cdef int _judged(Codec* self, const Verdict* verdict) noexcept nogil:
    self.asking = ASKING_NOT
    if verdict.code != 200:
        return mechanism_refuse(self, verdict.code, verdict.text, False)
    return _say_ready(<Curve*> self)


cdef int _take(Codec* self, uint8_t* body, size_t size) noexcept nogil:
    cdef int step = (<Zmtp*> self).step
    if step == HELLO:
        return _hello(self, body, size)
    if step == WELCOME:
        return _welcome(self, body, size)
    if step == INITIATE:
        return _take_initiate(self, body, size)
    return _ready(self, body, size)


cdef MechanismOps _OPS
_OPS.hello_max = HELLO_SIZE
_OPS.start = _start
_OPS.take = _take
_OPS.judged = _judged


cdef const MechanismOps* curve_ops() noexcept nogil:
    return &_OPS
