"""A socket's counters as one consistent picture."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t

from mqcore.sock.sock cimport Ended, Sock

cdef struct Snapshot:         # copied under the lock, made into objects after it
    int64_t sent, received, waiting, unmatched
    int64_t[14] dropped
    Ended total
    Ended left                # the sum over departed peers with unread messages, which are in `at`
    size_t left_peers
    int64_t left_dropped
    Ended* at                 # live peers first
    size_t live
    size_t n
    uint32_t batching


# Takes the lock. shot.at is for the caller to free; NULL with shot.n > 0: out of memory.
cdef void take_snapshot(Sock* s, Snapshot* shot) noexcept nogil
cdef dict account_dict(Ended* e)
