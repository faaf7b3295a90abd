"""A secret in memory of its own: see secret.pxd.

The pages come from mmap, so nothing else is in them and locking them locks nothing else. If the
system does not permit locking (RLIMIT_MEMLOCK) they may be swapped; they are cleared in any case.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.string cimport memcpy
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mlock, mmap, munmap,
)

from mqcore.base.includes cimport MADV_DONTDUMP, explicit_bzero, madvise

cdef enum:
    PAGE = 4096


cdef class Secret:
    """A copy of `data`, readable as a buffer while it lives. It is never shown, and never
    pickled."""

    def __cinit__(self, const uint8_t[::1] data not None):
        cdef void* at
        self.size = data.shape[0]
        self.room = (self.size + PAGE) // PAGE * PAGE
        at = mmap(NULL, self.room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if at == MAP_FAILED:
            raise MemoryError
        mlock(at, self.room)
        madvise(at, self.room, MADV_DONTDUMP)
        self.at = <uint8_t*> at
        if self.size:
            memcpy(at, &data[0], self.size)

    def __dealloc__(self):
        if self.at != NULL:
            explicit_bzero(self.at, self.room)
            munmap(self.at, self.room)
            self.at = NULL

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("a secret is not written to")
        PyBuffer_FillInfo(view, self, self.at, self.size, 1, flags)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return "<secret>"

    def __reduce__(self):
        raise TypeError("a secret is not pickled")
