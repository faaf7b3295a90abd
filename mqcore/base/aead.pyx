"""ChaCha20-Poly1305 (RFC 8439) for small messages, by libsodium. Their cost is that of the call:
`cryptography` takes microseconds for what is done in tenths. What is large goes there all the same,
since OpenSSL has the better loops."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from mqcore.base.includes cimport explicit_bzero
from mqcore.base.sodium cimport KEY, MAC, Length, Sodium, sodium

cdef enum:
    NONCE = 12
    SMALL = 1024              # bytes: from here on, OpenSSL is faster


cdef class SmallAead:
    """As ChaCha20Poly1305 of `cryptography`, for bytes. `large`: that of the same key, for large
    messages. `refused`: what decrypt() raises, that one's InvalidTag. Keeps a copy of the key, and
    clears it. After sodium_ready()."""

    cdef uint8_t[32] key
    cdef const Sodium* calls
    cdef object large, refused

    def __cinit__(self, bytes key not None, large, refused):
        self.calls = sodium()
        self.large, self.refused = large, refused
        if PyBytes_GET_SIZE(key) != KEY:
            raise ValueError(f"the key must have {KEY} bytes, not {len(key)}")
        if self.calls == NULL:
            raise RuntimeError("sodium_ready() has not found libsodium")
        memcpy(self.key, PyBytes_AS_STRING(key), KEY)

    def __dealloc__(self):
        explicit_bzero(self.key, KEY)

    def encrypt(self, bytes nonce not None, bytes data not None, bytes ad) -> bytes:
        """The sealed bytes, 16 longer than `data`. nonce: 12 bytes. ad: protected and not
        contained; None: nothing."""
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        cdef Length written
        cdef bytes out
        check(nonce)
        if n >= SMALL:
            return self.large.encrypt(nonce, data, ad)
        if ad is None:
            ad = b""
        out = PyBytes_FromStringAndSize(NULL, n + MAC)
        self.calls.aead_seal(
            <uint8_t*> PyBytes_AS_STRING(out), &written,
            <const uint8_t*> PyBytes_AS_STRING(data), n,
            <const uint8_t*> PyBytes_AS_STRING(ad), PyBytes_GET_SIZE(ad), NULL,
            <const uint8_t*> PyBytes_AS_STRING(nonce), self.key)
        return out

    def decrypt(self, bytes nonce not None, bytes data not None, bytes ad) -> bytes:
        """The plain bytes. Raises `refused`."""
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        cdef Length written
        cdef bytes out
        check(nonce)
        if n >= SMALL:
            return self.large.decrypt(nonce, data, ad)
        if n < MAC:
            raise self.refused
        if ad is None:
            ad = b""
        out = PyBytes_FromStringAndSize(NULL, n - MAC)
        if self.calls.aead_open(
                <uint8_t*> PyBytes_AS_STRING(out), &written, NULL,
                <const uint8_t*> PyBytes_AS_STRING(data), n,
                <const uint8_t*> PyBytes_AS_STRING(ad), PyBytes_GET_SIZE(ad),
                <const uint8_t*> PyBytes_AS_STRING(nonce), self.key):
            raise self.refused
        return out


cdef inline int check(bytes nonce) except -1:
    if PyBytes_GET_SIZE(nonce) != NONCE:
        raise ValueError(f"the nonce must have {NONCE} bytes, not {len(nonce)}")
    return 0
