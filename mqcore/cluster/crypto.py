"""The primitives that a cluster uses: one place to replace.

X25519 (RFC 7748), ChaCha20-Poly1305 (RFC 8439), HMAC (RFC 2104) and HKDF (RFC 5869) with SHA-256.
They come from the package `cryptography`. Two calls are faster elsewhere: HMAC comes from the
standard library, and ChaCha20-Poly1305 of small messages from libsodium, if it is installed.
"""

from __future__ import annotations

import hmac

from mqcore.base.aead import SmallAead
from mqcore.base.sodium import sodium_ready
from mqcore.errors import NotSupported

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
except ImportError:
    raise NotSupported("a cluster needs the package cryptography",
                       hint="pip install mqcore[cluster]") from None

__all__ = ["Aead", "InvalidTag", "X25519PrivateKey", "X25519PublicKey", "aead_of", "derive",
           "hmac_sha256"]

Aead = ChaCha20Poly1305 | SmallAead
_SODIUM = bool(sodium_ready())


def aead_of(key: bytes) -> Aead:
    """ChaCha20-Poly1305 with this key of 32 bytes. decrypt() raises InvalidTag."""
    whole = ChaCha20Poly1305(key)
    return SmallAead(key, whole, InvalidTag) if _SODIUM else whole


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    """32 bytes."""
    return hmac.digest(key, data, "sha256")


def derive(secret: bytes, purpose: str, length: int = 32) -> bytes:
    """HKDF (RFC 5869) of `secret` without salt; `purpose` is the info. At most 255 * 32 bytes."""
    extracted = hmac_sha256(bytes(32), secret)
    info, block, out = purpose.encode(), b"", b""
    while len(out) < length:
        block = hmac_sha256(extracted, block + info + bytes([len(out) // 32 + 1]))
        out += block
    return out[:length]
