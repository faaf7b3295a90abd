"""Race finder: `widen()` stands in the gaps between a look and the act that relies on it. In a
normal build it is nothing; built with -DMQ_WIDEN=20 every fourth one or so takes up to 20 us."""

cdef extern from *:
    """
    #ifdef MQ_WIDEN
    #include <sched.h>
    #include <stdint.h>
    #include <time.h>
    static inline void mq_widen(void) {
        static thread_local uint32_t dice = 0;
        struct timespec now, end;
        if (dice == 0) dice = (uint32_t) (uintptr_t) &dice | 1;
        dice ^= dice << 13; dice ^= dice >> 17; dice ^= dice << 5;
        if (dice & 3) return;
        if (dice & 4) { sched_yield(); return; }
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_nsec += (long) ((dice >> 3) % (1000L * MQ_WIDEN));
        if (end.tv_nsec >= 1000000000L) { end.tv_nsec -= 1000000000L; end.tv_sec += 1; }
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    }
    #elif defined(MQ_PLANT)  // a race on purpose: the sanitizer must see it
    static volatile unsigned long mq_planted;
    static inline void mq_widen(void) { mq_planted = mq_planted + 1; }
    #else
    #define mq_widen() ((void) 0)
    #endif
    #ifndef MQ_SLICE_NS
    #define MQ_SLICE_NS 100000000
    #endif
    """
    void widen "mq_widen" () noexcept nogil
    # how often a waiting main thread looks for signals that another thread took; stress runs make
    # it long, so that it does not hide lost wake-ups
    long SLICE_NS "MQ_SLICE_NS"
