"""Big-endian numbers, and a bounded reader for decoders: takes numbers and byte runs from a buffer,
never past its end.

A read that does not fit returns zero (or NULL), sets the cursor's `bad` and leaves nothing to read;
so a parser may read a whole record and ask once, at its end.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint bad


cdef inline void cursor_init(Cursor* c, const uint8_t* data, size_t size) noexcept nogil:
    c.at = data
    c.end = data + size
    c.bad = False


cdef inline size_t cursor_left(const Cursor* c) noexcept nogil:
    return c.end - c.at


cdef inline const uint8_t* cursor_bytes(Cursor* c, size_t n) noexcept nogil:
    """The next n bytes in place; NULL if there are not so many."""
    cdef const uint8_t* at = c.at
    if <size_t> (c.end - at) < n:
        c.bad = True
        c.at = c.end
        return NULL
    c.at = at + n
    return at


cdef inline uint8_t cursor_u8(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = cursor_bytes(c, 1)
    return at[0] if at != NULL else 0


cdef inline uint16_t load_be16(const uint8_t* at) noexcept nogil:
    return (<uint16_t> at[0] << 8) | at[1]


cdef inline uint32_t load_be32(const uint8_t* at) noexcept nogil:
    return (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | at[3]


cdef inline uint64_t load_be64(const uint8_t* at) noexcept nogil:
    return (<uint64_t> load_be32(at) << 32) | load_be32(at + 4)


cdef inline void store_be16(uint8_t* at, uint16_t value) noexcept nogil:
    at[0] = <uint8_t> (value >> 8)
    at[1] = <uint8_t> value


cdef inline void store_be32(uint8_t* at, uint32_t value) noexcept nogil:
    store_be16(at, <uint16_t> (value >> 16))
    store_be16(at + 2, <uint16_t> value)


cdef inline void store_be64(uint8_t* at, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        at[i] = <uint8_t> (value >> (56 - 8 * i))


cdef inline uint32_t cursor_be32(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = cursor_bytes(c, 4)
    return load_be32(at) if at != NULL else 0
