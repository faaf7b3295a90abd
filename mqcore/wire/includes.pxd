"""C declarations that Cython does not ship."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

cdef extern from "<sys/random.h>" nogil:
    int getentropy(void* buffer, size_t n)        # at most 256; blocks only while the kernel boots

cdef extern from * nogil:
    """
    /* Two words in one register of the vector unit, which every machine of 64 bits has. */
    typedef uint64_t mq_words __attribute__((vector_size(16), aligned(1), may_alias));

    /* XORs whole pieces of 64 bytes with the mask; how many bytes these are. */
    static inline size_t mq_mask_most(uint8_t *to, const uint8_t *source, size_t n, uint64_t mask) {
        const mq_words key = {mask, mask};
        size_t done = 0;
        for (; done + 64 <= n; done += 64) {
            const mq_words *in = (const mq_words *)(source + done);
            mq_words *out = (mq_words *)(to + done);
            const mq_words a = in[0] ^ key, b = in[1] ^ key, c = in[2] ^ key, d = in[3] ^ key;
            out[0] = a;
            out[1] = b;
            out[2] = c;
            out[3] = d;
        }
        return done;
    }
    """
    size_t mask_most "mq_mask_most"(
        uint8_t* to, const uint8_t* source, size_t n, uint64_t mask)
