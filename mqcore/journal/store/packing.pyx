"""Compressing a block's columns, and back: see packing.pxd.

pyarrow does not tell how many bytes of an LZ4 block it has decompressed, so a short one would leave
the rest of the memory as it was. lz4_size() counts them before any memory is allocated. With zstd,
pyarrow itself raises unless the size is exact.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EIO, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from mqcore.base.includes cimport iovec
from mqcore.journal.store.block cimport LZ4, ZSTD, BlockHeader, body_size
from mqcore.journal.store.buffer cimport Buffer, push
from mqcore.journal.store.log cimport Pack
from mqcore.spi.interpreter cimport PyGC_Disable, PyGC_Enable

import os

from mqcore.journal.store.compressors import codec

FLAGS = {"zstd": ZSTD, "lz4": LZ4}


cdef int _packing = 0           # calls of pack() that run; under the GIL
cdef int _collected = 0         # whether the collector was on before the first of them


cdef int pack(void* of, const iovec* pieces, int n, size_t size, Buffer* into) noexcept with gil:
    """The log's lock is held, so no other Python code may run here. The collector, whose finalizers
    may use the log, is off meanwhile: an error alone makes objects that it counts. Other threads
    run while the codec works, so what they leave to it waits as long."""
    global _packing, _collected
    cdef int rc
    if _packing == 0:
        _collected = PyGC_Disable()
    _packing += 1
    rc = packed_into(of, pieces, n, size, into)
    _packing -= 1
    if _packing == 0 and _collected:
        PyGC_Enable()
    return rc


def after_fork():
    """Another thread may have been packing, which is not in the child."""
    global _packing
    if _packing and _collected:
        PyGC_Enable()
    _packing = 0


os.register_at_fork(after_in_child=after_fork)


cdef int packed_into(void* of, const iovec* pieces, int n, size_t size, Buffer* into) noexcept:
    cdef bytes raw, done
    cdef char* to
    cdef int i
    into.n = 0
    try:
        raw = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(raw)
        for i in range(n):
            memcpy(to, pieces[i].iov_base, pieces[i].iov_len)
            to += pieces[i].iov_len
        done = (<object> of).compress(raw, True)
        return push(into, PyBytes_AS_STRING(done), PyBytes_GET_SIZE(done))
    except MemoryError:
        return ENOMEM
    except BaseException:       # a codec's, or of a thread that is being ended
        return EIO


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
