"""What the logs of one process share: the list that a fork goes through, and the flusher's bell.

A fork copies one thread only. Locks that other threads held stay locked in the child, and blocks in
progress may be half written. So the child's copy of every log refuses all calls from the fork on.
It has fresh locks that no thread holds, and no descriptors. The parent's logs do not change.

The flusher (flusher.py) sleeps until the earliest time that a log has requested.
"""

from libc.stdint cimport int64_t

from mqcore.journal.store.log cimport Log

cdef void log_enlist(Log* log) noexcept nogil       # a new log: forks know it from here on
cdef void log_delist(Log* log) noexcept nogil       # before it is freed
cpdef int forks() noexcept nogil                    # how many forks lie between this process and
                                                    # the one that imported this module
# Wake the flusher at this time (CLOCK_MONOTONIC, ns), or earlier if another log has asked for it.
# Takes no lock but the bell's own: call it with or without a log's lock.
cdef void bell_ring(int64_t due) noexcept nogil
