"""Batching: messages that come faster than they can be written leave together.

A send usually writes its message itself, at once. When sends follow each other so closely that the
writes are most of the work, the socket batches: a send only publishes its message, and whichever
comes first writes everything that is owed: the send that makes it 64 KiB, a receive or another wait
of the same thread, or the I/O thread's tick, every 100 us. Only the rate of sends decides. How long
one write took says more about the scheduler than about the load.
"""

from libc.stdint cimport int64_t, uint32_t

from mqcore.base.includes cimport thread_self
from mqcore.sock.sock cimport Sock

cdef enum:
    OWED_MAX = 64 * 1024      # bytes

cdef void batch_init(Sock* s) noexcept nogil
# Under no lock. Idempotent; the socket is watched (it has a home thread).
cdef void batch_begin(Sock* s) noexcept nogil
# This thread is about to sleep: write what it owes at any socket of the same context.
cdef void batch_settle(Sock* s) noexcept nogil


cdef inline bint batch_took(Sock* s, int64_t size) noexcept nogil:
    """Under the lock, batching: a message of so many bytes was taken. True: write what is owed.
    After a tick without a send it leaves at once; in a run of messages it waits for the next."""
    cdef bint paused = s.paused
    s.paused = False
    s.owed += size
    s.sends += 1
    s.sender.store(thread_self())
    return paused or s.owed >= OWED_MAX
