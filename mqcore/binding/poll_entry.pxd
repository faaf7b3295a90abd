"""One socket in a PollSet (poll_set.pyx)."""

from libc.stdint cimport uint32_t

from mqcore.binding.core cimport SocketCore
from mqcore.binding.plane cimport PlaneCore
from mqcore.sock.sock cimport Bell, Ring, Sock


cdef class PollEntry


cdef class PollBell:
    cdef Bell bell
    cdef PollEntry first

    cdef void keep(self, PollEntry entry) noexcept
    cdef void drop(self, PollEntry entry) noexcept
    cdef void leave_all(self) noexcept
    cdef void drop_all(self) noexcept
    cdef void shut(self) noexcept

# No thread wakes us, through what we slept on, when this returns.
cdef void bell_awake(Bell* bell) noexcept nogil


cdef class PollEntry:
    cdef readonly Py_ssize_t index
    cdef readonly object wanted
    cdef int want
    cdef int bits             # at the last look
    cdef int place
    cdef bint held            # the ring is at the socket
    cdef bint listed          # in PollSet.looks
    cdef bint pending         # the ring is armed or on the bell's stack; with the set's lock
    cdef uint32_t seen        # change, before the last look
    cdef Ring ring
    cdef PlaneCore plane
    cdef PollBell bell
    cdef PollEntry after      # PollBell.first, and behind it
    cdef void* before         # NULL: it is the first
    cdef bint kept            # it is one of these
    cdef object obj           # None: weakly, by `ref`
    cdef object ref
    cdef SocketCore core      # None: the object is one
    cdef bint foreign         # it is not
    cdef void* at             # the object, to compare with

    cdef object alive(self)
    cdef int join(self, SocketCore core) except -1
    cdef void leave(self) noexcept
    cdef int look(self, object obj) except -1
    cdef void watch(self) noexcept
