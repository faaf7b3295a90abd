"""Bytes that grow: a column of the block in the making. What returns int returns 0 or ENOMEM."""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cdef struct Buffer:
    uint8_t* at
    size_t n
    size_t cap


cdef inline int buffer_grow(Buffer* b, size_t more) noexcept nogil:
    cdef size_t cap = b.cap * 2 if b.cap * 2 > b.n + more else b.n + more
    cdef uint8_t* at
    if cap < 4096:
        cap = 4096
    at = <uint8_t*> realloc(b.at, cap)
    if at == NULL:
        return ENOMEM
    b.at = at
    b.cap = cap
    return 0


cdef inline int buffer_room(Buffer* b, size_t more) noexcept nogil:
    return 0 if b.n + more <= b.cap else buffer_grow(b, more)


cdef inline void buffer_trim(Buffer* b, size_t most) noexcept nogil:
    """Give the memory back if there is more of it; what is in it goes, too."""
    if b.cap > most:
        free(b.at)
        b.at = NULL
        b.n = b.cap = 0


cdef inline int push(Buffer* b, const void* data, size_t n) noexcept nogil:
    cdef int rc = buffer_room(b, n)
    if rc == 0 and n:
        memcpy(b.at + b.n, data, n)
        b.n += n
    return rc


cdef inline int push_end(Buffer* b, size_t end) noexcept nogil:
    cdef int32_t value = <int32_t> end
    return push(b, &value, 4)


cdef inline int push_zeros(Buffer* b, size_t n) noexcept nogil:
    cdef int rc = buffer_room(b, n)
    if rc == 0:
        memset(b.at + b.n, 0, n)
        b.n += n
    return rc
