"""Noise_XXpsk0_25519_ChaChaPoly_SHA256, after the Noise Protocol Framework, revision 34.

The state machine is ours, the primitives are those of `crypto.py`. No I/O: bytes in, bytes out.

    -> psk, e
    <- e, ee, s, es
    -> s, se

XX sends both static keys, sealed, so that nodes need no list of keys and still have identities.
psk0 mixes the cluster's key in before the first byte: a node without it fails at message 1 (48
bytes plus payload), and no static key is ever shown to it. SHA-256 rather than BLAKE2s, because
the keys are derived with it too (one hash to trust), and because processors and OpenSSL have it in
hardware.

What the messages protect (sections 7.7 and 9): the payload of message 1 is sealed under the
pre-shared key alone, so an old recording can be replayed and a thief of the key can read it; the
payloads of messages 2 and 3, and all that follows, have forward secrecy.

Section 5.1 is `Cipher`, 5.2 `_Symmetric`, 5.3 `Handshake`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from mqcore.cluster.crypto import (
    InvalidTag,
    X25519PrivateKey,
    X25519PublicKey,
    aead_of,
    hmac_sha256,
)
from mqcore.cluster.errors import NoiseError

PROTOCOL = b"Noise_XXpsk0_25519_ChaChaPoly_SHA256"
MESSAGE = 65535         # the longest Noise message, bytes (section 3)
TAG = 16
KEY = 32
MAX_NONCE = 2 ** 64 - 1     # reserved for rekey (section 4.2)
MAX_PSKS = 8            # a responder tries this many at most
_nonce = struct.Struct("<4xQ").pack

# the tokens of each message; the initiator writes the first and the third
PATTERN = (("psk", "e"), ("e", "ee", "s", "es"), ("s", "se"))


class Cipher:
    """One direction of a link: seals or opens messages in order. Not thread-safe.

    The nonce is the number of the message, from 0. A message that does not open leaves the nonce
    as it was, but the link must be closed: the stream cannot be resumed.
    """

    __slots__ = ("_aead", "_key", "nonce")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._aead = aead_of(key)
        self.nonce = 0

    def __repr__(self) -> str:
        return f"<Cipher, message {self.nonce}>"

    def encrypt(self, ad: bytes, plain: bytes) -> bytes:
        """The sealed bytes, 16 longer than `plain`, which may have 65,519 at most. `ad` is
        protected and not contained. Raises NoiseError ("size", "nonce")."""
        if len(plain) > MESSAGE - TAG:
            raise NoiseError(f"{len(plain)} bytes do not fit in one Noise message, which takes "
                             f"{MESSAGE - TAG}", reason="size", hint="cut the data into records")
        nonce = self.nonce
        if nonce >= MAX_NONCE:
            raise self._exhausted()
        sealed = self._aead.encrypt(_nonce(nonce), plain, ad)
        self.nonce = nonce + 1
        return sealed

    def decrypt(self, ad: bytes, sealed: bytes) -> bytes:
        """The plain bytes. Raises NoiseError ("size", "authentication", "nonce")."""
        if not TAG <= len(sealed) <= MESSAGE:
            raise NoiseError(f"no sealed message has {len(sealed)} bytes", reason="size")
        nonce = self.nonce
        if nonce >= MAX_NONCE:
            raise self._exhausted()
        try:
            plain = self._aead.decrypt(_nonce(nonce), sealed, ad)
        except InvalidTag:
            raise NoiseError(f"message {nonce} of the link does not authenticate: changed, "
                             "lost or repeated on the way") from None
        self.nonce = nonce + 1
        return plain

    def rekey(self) -> None:
        """Replaces the key by a one-way function of itself (section 4.2). Both ends must do so
        between the same two messages. The nonce goes on."""
        fresh = self._aead.encrypt(_nonce(MAX_NONCE), bytes(KEY), b"")[:KEY]
        self._key = fresh
        self._aead = aead_of(fresh)

    @staticmethod
    def _exhausted() -> NoiseError:
        return NoiseError("the cipher has no nonces left", reason="nonce", hint="make a new link")


class _Symmetric:
    """SymmetricState: the chaining key, the hash of the transcript, and the current cipher."""

    __slots__ = ("ck", "cipher", "h")

    def __init__(self) -> None:
        self.h = PROTOCOL.ljust(32, b"\0") if len(PROTOCOL) <= 32 else \
            hashlib.sha256(PROTOCOL).digest()
        self.ck = self.h
        self.cipher: Cipher | None = None

    def copy(self) -> _Symmetric:
        """Only before there is a cipher."""
        twin = _Symmetric()
        twin.h, twin.ck = self.h, self.ck
        return twin

    def expand(self, material: bytes, count: int) -> list[bytes]:
        """HKDF of section 4.3: `count` outputs of 32 bytes."""
        key = hmac_sha256(self.ck, material)
        outputs, last = [], b""
        for number in range(1, count + 1):
            last = hmac_sha256(key, last + bytes([number]))
            outputs.append(last)
        return outputs

    def mix_hash(self, data: bytes) -> None:
        self.h = hashlib.sha256(self.h + data).digest()

    def mix_key(self, material: bytes) -> None:
        self.ck, key = self.expand(material, 2)
        self.cipher = Cipher(key)

    def mix_key_and_hash(self, material: bytes) -> None:
        self.ck, mixed, key = self.expand(material, 3)
        self.mix_hash(mixed)
        self.cipher = Cipher(key)

    def encrypt(self, plain: bytes) -> bytes:
        assert self.cipher is not None      # psk0: from the first token on
        sealed = self.cipher.encrypt(self.h, plain)
        self.mix_hash(sealed)
        return sealed

    def decrypt(self, sealed: bytes) -> bytes:
        assert self.cipher is not None
        plain = self.cipher.decrypt(self.h, sealed)
        self.mix_hash(sealed)
        return plain


class Handshake:
    """One end of a handshake. The initiator writes, reads and writes; the responder the reverse.

        mine = Handshake(True, psk)
        link.write(mine.write_message())
        mine.read_message(link.read())
        link.write(mine.write_message())
        sending, receiving = mine.split()

    Args:
        initiator: whether this end writes the first message.
        psk: the pre-shared key, 32 bytes. A responder may give up to 8: it takes the one that opens
            message 1, and `psk_index` tells which. No key id is sent.
        static: this end's static private key, 32 bytes or an X25519PrivateKey; a new one if None.
        prologue: bytes that both ends must agree on, such as a version.

    After any error the handshake is over: every later call raises NoiseError ("order").
    """

    def __init__(self, initiator: bool, psk: bytes | Sequence[bytes],
                 static: bytes | X25519PrivateKey | None = None, prologue: bytes = b"", *,
                 _ephemeral: bytes | None = None) -> None:
        psks = [psk] if isinstance(psk, bytes | bytearray) else list(psk)
        if not 1 <= len(psks) <= (1 if initiator else MAX_PSKS):
            raise NoiseError(f"{len(psks)} pre-shared keys; an initiator has one, a responder up "
                             f"to {MAX_PSKS}", reason="key", hint="drop the oldest keys")
        if any(len(one) != KEY for one in psks):
            raise NoiseError("a pre-shared key must have 32 bytes", reason="key",
                             hint="take it from cluster.Key")
        self.initiator = initiator
        self.psk_index = 0
        self.remote_static: bytes | None = None     # known after the message that carries it
        self._psks = [bytes(one) for one in psks]
        self._static = _private(static)
        self._ephemeral = _private(_ephemeral)
        self._remote_ephemeral = b""
        self._turn = 0              # number of the next message, 3: done, -1: failed
        self._split = False
        self._state = _Symmetric()
        self._state.mix_hash(prologue)

    def __repr__(self) -> str:
        role = "initiator" if self.initiator else "responder"
        step = {-1: "failed", 3: "done"}.get(self._turn, f"at message {self._turn + 1} of 3")
        return f"<Handshake, {role}, {step}>"

    @property
    def done(self) -> bool:
        """Whether all three messages have gone through."""
        return self._turn == len(PATTERN)

    @property
    def handshake_hash(self) -> bytes:
        """32 bytes that name this very session (channel binding, section 11.2). Once done."""
        if not self.done:
            raise self._misplaced("handshake_hash")
        return self._state.h

    @property
    def static_public(self) -> bytes:
        """This end's static public key, 32 bytes."""
        return self._static.public_key().public_bytes_raw()

    def write_message(self, payload: bytes = b"") -> bytes:
        """The next message, with `payload` in it. Raises NoiseError."""
        self._must(writing=True, what="write_message")
        try:
            message = self._write(bytes(payload))
        except NoiseError:
            self._turn = -1
            raise
        self._turn += 1
        return message

    def read_message(self, data: bytes) -> bytes:
        """The payload of the peer's next message. Raises NoiseError, whatever the bytes are."""
        self._must(writing=False, what="read_message")
        try:
            if len(data) > MESSAGE:
                raise NoiseError(f"a handshake message of {len(data)} bytes, {MESSAGE} is the "
                                 "limit", reason="size")
            payload = self._read(bytes(data))
        except NoiseError:
            self._turn = -1
            raise
        self._turn += 1
        return payload

    def split(self) -> tuple[Cipher, Cipher]:
        """(sending, receiving) of this end; once, after the third message."""
        if not self.done or self._split:
            raise self._misplaced("split")
        self._split = True
        first, second = (Cipher(key) for key in self._state.expand(b"", 2))
        return (first, second) if self.initiator else (second, first)

    def _must(self, writing: bool, what: str) -> None:
        if not 0 <= self._turn < 3 or (self._turn % 2 == 0) != (self.initiator is writing):
            raise self._misplaced(what)

    def _misplaced(self, what: str) -> NoiseError:
        return NoiseError(f"{what}() does not fit here: {self!r}", reason="order",
                          hint="begin again with a new Handshake")

    def _write(self, payload: bytes) -> bytes:
        parts, state = [], self._state
        for token in PATTERN[self._turn]:
            if token == "e":
                public = self._ephemeral.public_key().public_bytes_raw()
                parts.append(public)
                state.mix_hash(public)
                state.mix_key(public)       # in all psk handshakes (section 9.2)
            elif token == "s":
                parts.append(state.encrypt(self.static_public))
            elif token == "psk":
                state.mix_key_and_hash(self._psks[0])
            else:
                state.mix_key(self._agree(token))
        parts.append(state.encrypt(payload))
        message = b"".join(parts)
        if len(message) > MESSAGE:
            raise NoiseError(f"a handshake message of {len(message)} bytes, {MESSAGE} is the limit",
                             reason="size", hint="send large data after the handshake")
        return message

    def _read(self, data: bytes) -> bytes:
        if self._turn == 0:
            return self._read_first(data)
        state = self._state
        for token in PATTERN[self._turn]:
            if token == "e":
                data = self._take_ephemeral(state, data)
            elif token == "s":
                sealed, data = _cut(data, KEY + TAG)
                self.remote_static = state.decrypt(sealed)
            else:
                state.mix_key(self._agree(token))
        return state.decrypt(data)

    def _read_first(self, data: bytes) -> bytes:
        """Message 1 has no Diffie-Hellman, so trying each key costs a few hashes."""
        for index, psk in enumerate(self._psks):
            state = self._state.copy()
            state.mix_key_and_hash(psk)
            rest = self._take_ephemeral(state, data)
            try:
                payload = state.decrypt(rest)
            except NoiseError as error:
                if error.reason != "authentication":
                    raise
                continue
            self._state, self.psk_index = state, index
            return payload
        raise NoiseError("the first handshake message does not authenticate: the peer has another "
                         "cluster key, or the bytes were changed")

    def _take_ephemeral(self, state: _Symmetric, data: bytes) -> bytes:
        public, rest = _cut(data, KEY)
        self._remote_ephemeral = public
        state.mix_hash(public)
        state.mix_key(public)
        return rest

    def _agree(self, token: str) -> bytes:
        """The X25519 result of a token: its first letter is the initiator's key, its second the
        responder's."""
        mine, theirs = token[not self.initiator], token[self.initiator]
        private = self._ephemeral if mine == "e" else self._static
        public = self._remote_ephemeral if theirs == "e" else self.remote_static
        assert public is not None
        try:
            return private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:      # the result is zero: a point of small order (RFC 7748, section 6.1)
            raise NoiseError("the peer's public key is no usable point", reason="key") from None


def _private(key: bytes | X25519PrivateKey | None) -> X25519PrivateKey:
    if key is None:
        return X25519PrivateKey.generate()
    if isinstance(key, X25519PrivateKey):
        return key
    if len(key) != KEY:
        raise NoiseError("a private key must have 32 bytes", reason="key",
                         hint="leave it out for a new one")
    return X25519PrivateKey.from_private_bytes(bytes(key))


def _cut(data: bytes, size: int) -> tuple[bytes, bytes]:
    if len(data) < size:
        raise NoiseError("the handshake message is too short", reason="size")
    return data[:size], data[size:]
