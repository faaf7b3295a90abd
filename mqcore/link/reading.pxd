"""Where the next bytes of a stream go, and how many of them the kernel tells us of at once."""

from mqcore.base.includes cimport iovec
from mqcore.link.engine cimport Engine

# Where the next bytes go: iov[0] the rest of a body under way, iov[1] a slab. Only a large body is
# read together with what follows, and that is little, since the next one is cut off too and copied
# out of the slab. False: the engine died.
cdef bint reading_target(Engine* e, iovec* iov) noexcept nogil
# The next slab's class, after a read of n bytes into this one.
cdef void reading_adapt(Engine* e, size_t n) noexcept nogil
# A read gave n bytes, and the kernel had no more. While a large body is on its way, a wake-up for
# each of its segments costs more than reading them, most of it the sender's time: the kernel tells
# of so many bytes together as it has held for us before (SO_RCVLOWAT, socket(7)). True: read again,
# since bytes that came before the mark was lowered may give no edge.
cdef bint reading_low_water(Engine* e, size_t n) noexcept nogil
