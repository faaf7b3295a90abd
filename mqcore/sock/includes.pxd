"""C declarations that Cython does not ship."""

from libc.stdint cimport uint32_t

cdef extern from * nogil:
    """
    /* Of each thread. Included by batching.pyx alone: another module would have its own. */
    static thread_local uint32_t mq_waits;
    static inline void mq_waits_count(void) { mq_waits++; }
    static inline uint32_t mq_waits_seen(void) { return mq_waits; }
    """
    void waits_count "mq_waits_count"()
    uint32_t waits_seen "mq_waits_seen"()
