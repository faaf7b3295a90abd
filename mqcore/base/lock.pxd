"""A lock of one word for short critical sections: one atomic operation when it is free, a futex
when it is not.

A thread that finds the lock taken looks a few times, then sleeps in the kernel, so a holder that
the scheduler has set aside gets its time back, whatever the priorities of the two threads. The
holder must not wait for the GIL: a thread that sleeps here may hold it.

Any thread of the creating process may use it. A forked child may have copied the lock while a
thread of the parent held it, and no thread releases it there. Such a child only uses `lock_try`.
"""

from libc.stdint cimport uint32_t
from libcpp.atomic cimport atomic, memory_order_acquire, memory_order_release

from mqcore.base.futex cimport futex_wait, futex_wake
from mqcore.base.includes cimport cpu_pause

cdef enum:
    LOCK_LOOKS = 50           # before a thread sleeps

cdef struct Lock:             # zero-initialize
    atomic[uint32_t] word     # 0 free, 1 taken, 2 taken and a thread may sleep


cdef inline bint lock_try(Lock* lock) noexcept nogil:
    cdef uint32_t free_ = 0
    # SYNC: acquire: sees what the last holder wrote
    return lock.word.compare_exchange_strong(free_, 1, memory_order_acquire)


cdef inline void lock_wait(Lock* lock) noexcept nogil:
    """Takes a lock that lock_try did not get."""
    cdef int look
    for look in range(LOCK_LOOKS):
        if lock.word.load() == 0 and lock_try(lock):
            return
        cpu_pause()
    # SYNC: acquire, as lock_try
    while lock.word.exchange(2, memory_order_acquire):
        futex_wait(&lock.word, 2, -1)


cdef inline void lock_take(Lock* lock) noexcept nogil:
    if not lock_try(lock):
        lock_wait(lock)


cdef inline void lock_release(Lock* lock) noexcept nogil:
    # SYNC: release: the next holder sees what this one wrote
    if lock.word.exchange(0, memory_order_release) == 2:
        futex_wake(&lock.word, 1)
