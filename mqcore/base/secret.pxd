"""Memory for a secret: of its own, not swapped, not dumped, cleared before it is given back."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t


cdef class Secret:
    cdef uint8_t* at          # one page, or several; NULL: cleared
    cdef size_t size          # of the secret
    cdef size_t room
