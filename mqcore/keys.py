"""CURVE keys, and Z85, in which they are written (RFC 32)."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeAlias

from mqcore.base.secret import Secret
from mqcore.base.sodium import keypair, public_of, sodium_ready
from mqcore.errors import NotSupported, OptionError

KEY = 32  # bytes
TEXT = 40  # characters of a key in Z85
Z85 = ("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
_DIGITS = {digit: value for value, digit in enumerate(Z85)}

Bytes: TypeAlias = "bytes | bytearray | memoryview | Secret"


def z85_encode(data: Bytes) -> str:
    """Encode bytes as Z85 (RFC 32). OptionError unless their number is a multiple of 4."""
    raw = bytes(memoryview(data))
    if len(raw) % 4:
        raise OptionError(f"Z85 needs a multiple of 4 bytes, not {len(raw)}")
    text = []
    for at in range(0, len(raw), 4):
        word = int.from_bytes(raw[at:at + 4], "big")
        text += [Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(text)


def z85_decode(text: str) -> bytes:
    """Decode Z85 text (RFC 32). OptionError if the text is not valid Z85."""
    data = bytearray()
    if len(text) % 5:
        raise OptionError(f"Z85 text has a multiple of 5 characters, not {len(text)}")
    for at in range(0, len(text), 5):
        word = 0
        for digit in text[at:at + 5]:
            if digit not in _DIGITS:
                raise OptionError("the text has a character that Z85 does not use")
            word = word * 85 + _DIGITS[digit]
        if word >> 32:
            raise OptionError("not Z85: a group of five characters exceeds 32 bits")
        data += word.to_bytes(4, "big")
    return bytes(data)


def _key_hint(given: Any, what: str) -> str:
    """Suggest a fix for a value that is not a key. Never shows the value."""
    half = "secret" if "secret" in what else "public"
    if hasattr(given, "public") and hasattr(given, "secret"):  # a Certificate, a KeyPair
        return f"pass its .{half}"
    if isinstance(given, os.PathLike) or (isinstance(given, str) and (
            os.path.exists(given) or given.endswith((".key", ".key_secret")))):
        return f"load_certificate(path).{half} reads the key from a file"
    return "make a pair with curve_keypair() or `mq keygen`"


def key_bytes(key: str | Bytes, what: str = "a key") -> bytes:
    """A key of 32 bytes, from 40 characters of Z85 (str or ASCII bytes) or from the bytes."""
    if isinstance(key, str):
        if len(key) != TEXT:
            raise OptionError(f"{what} must be 40 characters of Z85 or 32 bytes, "
                              f"not {len(key)} characters", hint=_key_hint(key, what))
        try:
            return z85_decode(key)
        except OptionError as error:
            raise OptionError(f"{what} is not valid: {error.text}") from None
    try:
        data = bytes(memoryview(key))
    except TypeError:
        raise OptionError(f"{what} must be 40 characters of Z85 or 32 bytes, "
                          f"not {type(key).__name__}", hint=_key_hint(key, what)) from None
    if len(data) == TEXT:
        return key_bytes(data.decode("latin-1"), what)
    if len(data) != KEY:
        raise OptionError(f"{what} must be 40 characters of Z85 or 32 bytes, not {len(data)} bytes")
    return data


def need_sodium() -> str:
    """The version of libsodium. NotSupported if it is missing; the hint says how to install it."""
    version = sodium_ready()
    if not version:
        raise NotSupported("CURVE needs libsodium, but this system does not have it",
                           hint="install it: apt install libsodium23, dnf install libsodium, "
                                "apk add libsodium; or install a wheel of mqcore, which brings it; "
                                "PLAIN and TLS (tls+tcp://) do not need it")
    return version


class KeyPair(NamedTuple):
    """A CURVE key pair in Z85. Publish the public key; keep the secret key to yourself."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret=...)"


def curve_keypair() -> KeyPair:
    """Create a new key pair. NotSupported without libsodium."""
    need_sodium()
    public, secret = keypair()
    return KeyPair(z85_encode(public), z85_encode(secret))


def curve_public(secret: str | Bytes) -> str:
    """The public key, in Z85, of a secret key."""
    need_sodium()
    return z85_encode(public_of(key_bytes(secret, "a secret key")))
