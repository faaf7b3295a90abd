"""What a pattern in Python is shown, and what it answers with: see pattern.py."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

from mqcore.base.message cimport msg_data, msg_size
from mqcore.spi.pattern cimport op_current
from mqcore.spi.pipe cimport pipe_has_room

from mqcore.spi.drop import DROP_REASONS

NUMBERS = {name: i for i, (name, _) in enumerate(DROP_REASONS)}


class Drop:
    """An answer of route() and accept(): take the message and throw it away, counted under
    `reason`, one of the names in mqcore/spi/drop.py."""

    __slots__ = ("number", "reason")

    def __init__(self, reason: str):
        if reason not in NUMBERS:
            raise ValueError(f"no reason {reason!r} to drop a message; there are "
                             f"{', '.join(NUMBERS)}")
        self.reason = reason
        self.number = NUMBERS[reason]

    def __repr__(self):
        return f"Drop({self.reason!r})"


@cython.final
cdef class Peer:
    """A peer of this socket, for as long as it is attached. `data` is the pattern's own."""

    def __init__(self):
        raise TypeError("peers come from the socket")

    def has_room(self, size=0):
        """May a message of so many bytes be written to it now? Only within the pattern's own
        methods. Where the answer is no, the socket asks again when there is space."""
        cdef int64_t bytes_ = size.size if isinstance(size, Parts) else size
        if op_current() != self.owner:
            raise RuntimeError("has_room() is for the methods of the pattern, while they are "
                               "called")
        return not self.gone and pipe_has_room(self.pipe, bytes_)

    def __repr__(self):
        return f"<peer {self.id}{' gone' if self.gone else ''}>"


@cython.final
@cython.freelist(8)
@cython.no_gc
cdef class Parts:
    """The parts of one message, read where they lie: a sequence of bytes, each copied when it is
    looked at. Valid until the method that was given it returns."""

    def __init__(self):
        raise TypeError("parts come from the socket")

    cdef Msg* part(self, Py_ssize_t i) except NULL:
        if self.n == 0 or op_current() != self.owner:     # or another thread looks meanwhile
            raise RuntimeError("these parts are valid only within the call that was given them")
        if i < 0:
            i += self.n
        if not 0 <= i < <Py_ssize_t> self.n:
            raise IndexError("part index out of range")
        return &self.run[i] if self.run != NULL else self.each[i]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        cdef Msg* m
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self.n))]
        m = self.part(i)
        return PyBytes_FromStringAndSize(<char*> msg_data(m), msg_size(m))

    def head(self, size_t size, Py_ssize_t i=0):
        """The first `size` bytes of part i, or as many as it has."""
        cdef Msg* m = self.part(i)
        return PyBytes_FromStringAndSize(<char*> msg_data(m), min(size, msg_size(m)))

    def size_of(self, Py_ssize_t i):
        """Bytes of part i."""
        return msg_size(self.part(i))

    @property
    def size(self):
        """Bytes of all parts."""
        return sum(self.size_of(i) for i in range(self.n))
