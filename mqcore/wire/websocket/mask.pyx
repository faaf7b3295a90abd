"""Keys for masking: ChaCha8 (D. J. Bernstein, 2008) with a counter of 64 bits."""

from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.wire.includes cimport getentropy

cdef enum:
    DOUBLE_ROUNDS = 4


cdef int keys_init(Keys* k) noexcept nogil:
    memcpy(k.state, b"expand 32-byte k", 16)
    k.left = 0
    return MQ_NOMEM if getentropy(&k.state[4], 48) else MQ_OK


cdef inline uint32_t _turn(uint32_t x, int n) noexcept nogil:
    return x << n | x >> (32 - n)


cdef inline void _quarter(uint32_t* x, int a, int b, int c, int d) noexcept nogil:
    x[a] += x[b]
    x[d] = _turn(x[d] ^ x[a], 16)
    x[c] += x[d]
    x[b] = _turn(x[b] ^ x[c], 12)
    x[a] += x[b]
    x[d] = _turn(x[d] ^ x[a], 8)
    x[c] += x[d]
    x[b] = _turn(x[b] ^ x[c], 7)


cdef void keys_refill(Keys* k) noexcept nogil:
    cdef uint32_t[16] x
    cdef int i
    memcpy(x, k.state, 64)
    for _ in range(DOUBLE_ROUNDS):
        _quarter(x, 0, 4, 8, 12)
        _quarter(x, 1, 5, 9, 13)
        _quarter(x, 2, 6, 10, 14)
        _quarter(x, 3, 7, 11, 15)
        _quarter(x, 0, 5, 10, 15)
        _quarter(x, 1, 6, 11, 12)
        _quarter(x, 2, 7, 8, 13)
        _quarter(x, 3, 4, 9, 14)
    for i in range(16):
        k.block[i] = x[i] + k.state[i]
    k.left = 16
    k.state[12] += 1
    if k.state[12] == 0:
        k.state[13] += 1
