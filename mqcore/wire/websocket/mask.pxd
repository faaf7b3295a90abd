"""WebSocket's masking (RFC 6455, section 5.3), and the keys for it.

A client XORs each frame's payload with a key of four bytes, so that a page's script cannot choose
the transmitted bytes: an intermediary that mistakes the bytes for HTTP must not be controlled by
them (section 10.3). For that, a party that sees or chooses payloads must not be able to predict a
key. Keys come from ChaCha8, keyed once per connection by the kernel. They are unpredictable from
any number of earlier keys and cost a few nanoseconds each, where a system call per frame would cost
hundreds.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.wire.includes cimport mask_most

cdef struct Keys:             # of one connection; for the holder of the engine's lease
    uint32_t[16] state        # constants, key, counter
    uint32_t[16] block        # keys made ahead
    uint32_t left

# MQ_OK; MQ_NOMEM: the kernel gives no random bytes.
cdef int keys_init(Keys* k) noexcept nogil
cdef void keys_refill(Keys* k) noexcept nogil


cdef inline uint32_t keys_next(Keys* k) noexcept nogil:
    if k.left == 0:
        keys_refill(k)
    k.left -= 1
    return k.block[k.left]


cdef inline uint64_t mask_at(const uint8_t* key, size_t offset) noexcept nogil:
    """The eight bytes that payload from `offset` on is XORed with, over and over."""
    cdef uint8_t[8] bytes
    cdef uint64_t mask
    cdef size_t i
    for i in range(8):
        bytes[i] = key[(offset + i) & 3]
    memcpy(&mask, bytes, 8)
    return mask


cdef inline uint64_t mask_turn(uint64_t mask, size_t n) noexcept nogil:
    """The mask for what comes n bytes later."""
    return mask_at(<const uint8_t*> &mask, n) if n & 3 else mask


cdef inline void mask_bytes(
        uint8_t* to, const uint8_t* source, size_t n, uint64_t mask) noexcept nogil:
    """Masks or unmasks; `to` may be `source`, no other overlap. mask 0: a copy."""
    cdef uint64_t word
    cdef size_t i
    if mask == 0:
        if to != source and n:
            memcpy(to, source, n)
        return
    i = mask_most(to, source, n, mask)
    while i + 8 <= n:
        memcpy(&word, source + i, 8)
        word ^= mask
        memcpy(to + i, &word, 8)
        i += 8
    while i < n:
        to[i] = source[i] ^ (<const uint8_t*> &mask)[i & 7]
        i += 1
