"""Whether a segment file is as its writer left it: the last guard where its lock was removed or is
not kept by the file system. What returns int returns 0 or ESTALE, or the errno of the question."""

from libc.errno cimport ESTALE, errno
from libc.stdint cimport int64_t, uint32_t
from posix.stat cimport fstat, struct_stat

from mqcore.journal.store.block cimport BLOCK_HEADER, BlockHeader
from mqcore.journal.store.includes cimport pread


cdef inline int intact(int fd, int64_t size) noexcept nogil:
    """No other process has written behind its end, cut it, or removed it."""
    cdef struct_stat facts
    if fstat(fd, &facts) != 0:
        return errno
    return 0 if facts.st_size == size and facts.st_nlink else ESTALE


cdef inline int kept(int fd, int64_t pos, uint32_t crc) noexcept nogil:
    """The block whose header has this CRC is still there. pos < 0: there is none yet."""
    cdef BlockHeader h
    if pos < 0:
        return 0
    if pread(fd, &h, BLOCK_HEADER, pos) != BLOCK_HEADER:
        return ESTALE
    return 0 if h.crc == crc else ESTALE
