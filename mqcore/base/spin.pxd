"""Spinning before sleeping: how long a wait looks again and again before it enters the kernel.

A wait that spun without success halves the time of the next one. Once that is below SPIN_LEAST, the
next 16 waits do not spin at all, after another failure 32, up to 1024. A wait that succeeds
restores the full time. One thread at a time uses a Spin.
"""

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    SPIN_LOOKS = 8            # looks between two readings of the clock
    SPIN_LEAST = 2000         # ns; less does not pay off
    SPIN_SKIP = 16            # waits without spinning after spinning did not pay off; doubles
    SPIN_SKIP_MOST = 1024

cdef struct Spin:             # zero-initialise
    int64_t ns                # that the next wait spins; 0: the most
    uint32_t skip             # waits left that do not spin
    uint32_t pause            # how many they were the last time


cdef inline int64_t spin_time(Spin* s, int64_t most) noexcept nogil:
    """How long this wait spins, in ns; `most` is the limit. 0: not at all."""
    if s.skip:
        s.skip -= 1
        return 0
    if s.ns == 0 or s.ns > most:
        s.ns = most
    return s.ns


cdef inline void spin_paid(Spin* s, int64_t most) noexcept nogil:
    s.ns = most
    s.pause = 0


cdef inline void spin_failed(Spin* s) noexcept nogil:
    s.ns //= 2
    if s.ns < SPIN_LEAST:
        s.ns = 0
        s.pause = min(max(2 * s.pause, <uint32_t> SPIN_SKIP), <uint32_t> SPIN_SKIP_MOST)
        s.skip = s.pause
