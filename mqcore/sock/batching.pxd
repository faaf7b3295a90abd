"""Batching: messages that come faster than they can be written leave together.

A send usually writes its message itself, at once. When sends follow each other so closely that the
writes are most of the work, the socket batches: a send only publishes its message, and whichever
comes first writes everything that is owed: the send that makes it 64 KiB, a receive or another wait
of the same thread, or the I/O thread: as soon as it wakes, then at its tick, every 100 us. A
socket whose traffic comes in bursts batches after the first few messages of a burst: written one by
one, the first sixteen would take longer than all the others.

Only the rate of sends decides. How long one write took says more about the scheduler than about the
load. A thread that waits between two sends of its own, as in an exchange of questions and answers,
has no batch to write: such sends do not count, however quickly the answers come.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from mqcore.base.includes cimport thread_self
from mqcore.link.plane cimport Plane
from mqcore.sock.sock cimport Sock

cdef enum:
    GAP_NS = 10000            # a send that begins sooner after the one before it follows closely,
    BURST = 16                # and so many in a row begin batching,
    BURST_AGAIN = 3           # or so many, if batching was worth it and has ended
    AGAIN_NS = 1000000000     # no longer ago than this: traffic comes in bursts
    OWED_MAX = 64 * 1024      # bytes

cdef void batch_init(Sock* s) noexcept nogil
# Under no lock. Idempotent; the socket is watched (it has a home thread).
cdef void batch_begin(Sock* s) noexcept nogil
# This thread is about to sleep: write what it owes at any socket of this context.
cdef void batch_settle(Plane* plane) noexcept nogil
# How often this thread has slept in the library, in any context; wraps around.
cdef uint32_t batch_waits() noexcept nogil


cdef inline bint batch_took(Sock* s, int64_t size) noexcept nogil:
    """Under the lock, batching: a message of so many bytes was taken. True: write what is owed.
    After a tick without a send it leaves at once; in a run of messages it waits for the next."""
    cdef bint paused = s.paused
    s.paused = False
    s.owed += size
    s.sends += 1
    s.sender.store(thread_self())
    return paused or s.owed >= OWED_MAX


cdef inline bint batch_begins(Sock* s, uint32_t burst) noexcept nogil:
    """Whether so many sends in a row, the last just now, begin batching."""
    if burst < BURST_AGAIN:
        return False
    return burst >= BURST or s.last_write.load() - s.batched.load() < AGAIN_NS


cdef inline bint batch_follows(Sock* s, int64_t now) noexcept nogil:
    """Whether this send closely follows the one before it. A thread that has waited in between
    answers something. Several senders may race here: a burst is a hint, not an account."""
    cdef uint64_t me = thread_self()
    cdef uint32_t waits = batch_waits()
    cdef bint answers = s.last_sender.load() == me and s.last_waits.load() != waits
    s.last_sender.store(me)
    s.last_waits.store(waits)
    return not answers and now - s.last_write.load() < GAP_NS
