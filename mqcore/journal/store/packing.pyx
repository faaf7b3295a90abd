"""Compressing a block's columns, and back: see packing.pxd.

pyarrow does not tell how many bytes of an LZ4 block it has decompressed, so a short one would leave
the rest of the memory as it was. lz4_size() counts them before any memory is allocated. With zstd,
pyarrow itself raises unless the size is exact.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EIO, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.journal.store.block cimport LZ4, ZSTD, BlockHeader, body_size
from mqcore.journal.store.buffer cimport Buffer, push
from mqcore.journal.store.log cimport Pack

from mqcore.journal.store.compressors import codec

FLAGS = {"zstd": ZSTD, "lz4": LZ4}


cdef int pack(void* of, const uint8_t* raw, size_t n, Buffer* into) noexcept with gil:
    cdef Py_buffer view
    cdef int rc
    try:
        data = (<object> of).compress(
            PyMemoryView_FromMemory(<char*> raw, n, PyBUF_READ), asbytes=False)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    except MemoryError:
        return ENOMEM
    except Exception:
        return EIO
    into.n = 0
    rc = push(into, view.buf, view.len)
    PyBuffer_Release(&view)
    return rc


cdef Pack packer() noexcept nogil:
    return pack


cdef object unpack(const BlockHeader* h, const uint8_t* at):
    cdef int64_t size = <int64_t> body_size(h)
    if h.flags & LZ4 and lz4_size(at, h.packed_bytes) != size:
        return None
    of = codec("lz4" if h.flags & LZ4 else "zstd")
    try:
        found = of.decompress(
            PyMemoryView_FromMemory(<char*> at, h.packed_bytes, PyBUF_READ), size)
    except (OSError, ValueError):       # as pyarrow reports it
        return None
    return memoryview(found).cast("B").toreadonly()


cdef const uint8_t* address_of(object view) except NULL:
    cdef const uint8_t[::1] bytes_of = view
    return &bytes_of[0]


cdef uint32_t flag_of(str name) except 0:
    return FLAGS[name]


cdef inline int64_t more(const uint8_t* at, size_t* i, size_t n) noexcept nogil:
    """The rest of a length whose four bits were all set; -1: the block ends in it."""
    cdef int64_t found = 0
    while i[0] < n:
        i[0] += 1
        found += at[i[0] - 1]
        if at[i[0] - 1] != 255:
            return found
    return -1


cdef int64_t lz4_size(const uint8_t* at, size_t n) noexcept nogil:
    cdef int64_t size = 0, literals, match
    cdef size_t i = 0
    while i < n:
        literals = at[i] >> 4
        match = at[i] & 15
        i += 1
        if literals == 15:
            literals = more(at, &i, n)
            if literals < 0:
                return -1
            literals += 15
        if <size_t> literals > n - i:
            return -1
        i += literals
        size += literals
        if i == n:              # the last sequence has literals alone
            return size
        if n - i < 2:
            return -1
        i += 2                  # the distance
        if match == 15:
            match = more(at, &i, n)
            if match < 0:
                return -1
            match += 15
        size += match + 4
    return -1
