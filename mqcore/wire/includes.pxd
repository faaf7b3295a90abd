"""C declarations that Cython does not ship."""

from libc.stddef cimport size_t

cdef extern from "<sys/random.h>" nogil:
    int getentropy(void* buffer, size_t n)        # at most 256; blocks only while the kernel boots
