"""A growable byte string. Zero-initialise; end with `bytes_fini`."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from mqcore.base.status cimport MQ_NOMEM, MQ_OK

cdef struct Bytes:
    uint8_t* at
    size_t n
    size_t cap


cdef inline int bytes_reserve(Bytes* b, size_t n) noexcept nogil:
    """Room for n more behind what is there. MQ_OK, MQ_NOMEM."""
    cdef size_t cap
    cdef uint8_t* at
    if b.n + n > b.cap:
        cap = b.cap * 2 if b.cap else 64
        while cap < b.n + n:
            cap *= 2
        at = <uint8_t*> realloc(b.at, cap)
        if at == NULL:
            return MQ_NOMEM
        b.at = at
        b.cap = cap
    return MQ_OK


cdef inline int bytes_append(Bytes* b, const void* data, size_t n) noexcept nogil:
    if bytes_reserve(b, n):
        return MQ_NOMEM
    if n:                     # of nothing, from nowhere, it would be undefined
        memcpy(b.at + b.n, data, n)
        b.n += n
    return MQ_OK


cdef inline void bytes_fini(Bytes* b) noexcept nogil:
    free(b.at)
    b.at = NULL
    b.n = 0
    b.cap = 0
