"""The calls of a thread since it last let other tasks run: how many, and when the first was, in ns.
Included by pace.pyx alone: another module would have its own."""

from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    static thread_local struct { int64_t count, since; } mq_pace_here;
    static inline int64_t mq_pace_next(void) { return ++mq_pace_here.count; }
    static inline void mq_pace_begin(int64_t now) { mq_pace_here.since = now; }
    static inline int64_t mq_pace_since(void) { return mq_pace_here.since; }
    static inline void mq_pace_forget(void) { mq_pace_here.count = 0; }
    """
    int64_t pace_next "mq_pace_next"()
    void pace_begin "mq_pace_begin"(int64_t now)
    int64_t pace_since "mq_pace_since"()
    void pace_forget "mq_pace_forget"()
