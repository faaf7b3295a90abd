"""Bytes to the segment file. What returns int returns 0 or an errno."""

from libc.errno cimport EINTR, EIO, errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from mqcore.base.includes cimport iovec
from mqcore.journal.store.block cimport ALIGN, BLOCK_HEADER
from mqcore.journal.store.log cimport Log

cdef extern from *:
    """
    static const unsigned char mq_nothing[128] = {0};
    """
    const uint8_t* NOTHING "mq_nothing"             # BLOCK_HEADER zeroes


cdef inline int write_all(Log* log, iovec* iov, int n, int64_t at) noexcept nogil:
    """To the file's place `at`; `reach` says how far it came."""
    cdef ssize_t done
    while n:
        done = log.ops.pwritev(log.ops.self, log.fd, iov, n, at)
        if done < 0:
            if errno == EINTR:
                continue
            return errno
        if done == 0:
            return EIO
        at += done
        if at > log.reach:
            log.reach = at
        while n and <size_t> done >= iov.iov_len:
            done -= iov.iov_len
            iov += 1
            n -= 1
        if n:
            iov.iov_base = <uint8_t*> iov.iov_base + done
            iov.iov_len -= done
    return 0


cdef inline int write_over(Log* log, iovec* iov, int n, int64_t at) noexcept nogil:
    """Where a failed write has left something, and readers look meanwhile: the old header goes
    first, and the new one comes last."""
    cdef iovec head = iov[0]
    cdef iovec none
    cdef int rc = 0
    none.iov_base = <void*> NOTHING
    none.iov_len = ALIGN if at + ALIGN < log.reach else log.reach - at
    if n > 1:
        rc = write_all(log, &none, 1, at)
    if rc == 0 and n > 1:
        rc = write_all(log, iov + 1, n - 1, at + BLOCK_HEADER)
    return rc if rc else write_all(log, &head, 1, at)
