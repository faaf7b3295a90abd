"""libsodium's calls, found at run time: no build of ours needs it, and without it only CURVE is
missing.

`sodium_ready()` (Python) looks for the library once and fills the table; `sodium()` is NULL until
it has. The calls take no GIL, keep no state and may run on any thread.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

ctypedef unsigned long long Length

cdef enum:
    KEY = 32                  # of any kind: secret, public, shared, of a secretbox
    NONCE = 24
    MAC = 16                  # in front of what is boxed

cdef struct Sodium:
    int (*init)() noexcept nogil
    const char* (*version)() noexcept nogil
    void (*random)(void* out, size_t n) noexcept nogil
    int (*keypair)(uint8_t* public, uint8_t* secret) noexcept nogil
    int (*base)(uint8_t* public, const uint8_t* secret) noexcept nogil
    # The key that two sides share. -1: their public key is none.
    int (*before)(uint8_t* shared, const uint8_t* public, const uint8_t* secret) noexcept nogil
    # MAC and ciphertext together; and apart, in place if `out` is `data`. -1: it does not open.
    int (*box)(uint8_t* out, const uint8_t* data, Length n, const uint8_t* nonce,
               const uint8_t* key) noexcept nogil
    int (*open)(uint8_t* out, const uint8_t* data, Length n, const uint8_t* nonce,
                const uint8_t* key) noexcept nogil
    int (*seal)(uint8_t* out, uint8_t* mac, const uint8_t* data, Length n, const uint8_t* nonce,
                const uint8_t* key) noexcept nogil
    int (*unseal)(uint8_t* out, const uint8_t* data, const uint8_t* mac, Length n,
                  const uint8_t* nonce, const uint8_t* key) noexcept nogil
    # ChaCha20-Poly1305 with a nonce of 12 bytes, the MAC behind. `secret` is NULL. -1: it does not
    # open.
    int (*aead_seal)(uint8_t* out, Length* written, const uint8_t* data, Length n,
                     const uint8_t* ad, Length ad_n, const uint8_t* secret, const uint8_t* nonce,
                     const uint8_t* key) noexcept nogil
    int (*aead_open)(uint8_t* out, Length* written, uint8_t* secret, const uint8_t* data, Length n,
                     const uint8_t* ad, Length ad_n, const uint8_t* nonce, const uint8_t* key
                     ) noexcept nogil

cdef const Sodium* sodium() noexcept nogil
