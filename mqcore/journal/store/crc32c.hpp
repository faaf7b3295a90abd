// SPDX-License-Identifier: MPL-2.0
//
// CRC-32C (Castagnoli; RFC 3720 appendix B.4): reflected polynomial 0x82F63B78, start and final
// value inverted. crc32c(crc32c(0, a), b) is the CRC of a followed by b.
//
// With the CPU's instruction where there is one, asked at run time. The instruction takes three
// cycles and one can start in each, so three neighbouring stretches run at once; the CRC of the
// whole is put together by moving a register over a stretch of zeros, which is linear and so four
// table look-ups. Hardware prefetchers end at a page's end, so that three stretches of a page each
// would wait for memory: what comes next is asked for while this is summed, which makes it twice as
// fast on what is in no cache.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace mq::crc32c_parts {

using Table = std::array<std::array<uint32_t, 256>, 8>;
using Shift = std::array<std::array<uint32_t, 256>, 4>;

// slice[k][b]: the register after byte b and k zero bytes
constexpr Table make_table() {
    Table t{};
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t r = b;
        for (int bit = 0; bit < 8; bit++)
            r = (r >> 1) ^ (r & 1 ? 0x82F63B78u : 0);
        t[0][b] = r;
    }
    for (uint32_t b = 0; b < 256; b++)
        for (int k = 1; k < 8; k++)
            t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 255];
    return t;
}

inline constexpr Table TABLE = make_table();

// shift[k][b]: what byte k of the register becomes after `zeros` zero bytes
constexpr Shift make_shift(size_t zeros) {
    std::array<uint32_t, 32> basis{};
    for (int bit = 0; bit < 32; bit++) {
        uint32_t r = 1u << bit;
        for (size_t i = 0; i < zeros; i++)
            r = (r >> 8) ^ TABLE[0][r & 255];
        basis[bit] = r;
    }
    Shift s{};
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            for (int bit = 0; bit < 8; bit++)
                if (b >> bit & 1)
                    s[k][b] ^= basis[8 * k + bit];
    return s;
}

constexpr size_t LONG = 4096, SHORT = 256;      // bytes of one of three stretches
inline constexpr Shift OVER_LONG = make_shift(LONG), OVER_SHORT = make_shift(SHORT);

inline uint32_t over(const Shift& s, uint32_t r) {
    return s[0][r & 255] ^ s[1][r >> 8 & 255] ^ s[2][r >> 16 & 255] ^ s[3][r >> 24];
}

inline uint64_t load(const uint8_t* p) {
    uint64_t v;
    std::memcpy(&v, p, 8);
    return v;
}

// little-endian hosts only, as the format's columns are
inline uint32_t portable(uint32_t r, const uint8_t* p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v = load(p) ^ r;
        r = TABLE[7][v & 255] ^ TABLE[6][v >> 8 & 255] ^ TABLE[5][v >> 16 & 255]
            ^ TABLE[4][v >> 24 & 255] ^ TABLE[3][v >> 32 & 255] ^ TABLE[2][v >> 40 & 255]
            ^ TABLE[1][v >> 48 & 255] ^ TABLE[0][v >> 56];
    }
    for (; n; n--, p++)
        r = (r >> 8) ^ TABLE[0][(r ^ *p) & 255];
    return r;
}

#if defined(__x86_64__)
#define MQ_CRC_TARGET __attribute__((target("sse4.2")))
MQ_CRC_TARGET inline uint64_t step8(uint64_t r, uint64_t v) { return _mm_crc32_u64(r, v); }
MQ_CRC_TARGET inline uint32_t step1(uint32_t r, uint8_t v) { return _mm_crc32_u8(r, v); }
inline bool available() { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__linux__)
#define MQ_CRC_TARGET __attribute__((target("+crc")))
MQ_CRC_TARGET inline uint32_t step8(uint32_t r, uint64_t v) { return __crc32cd(r, v); }
MQ_CRC_TARGET inline uint32_t step1(uint32_t r, uint8_t v) { return __crc32cb(r, v); }
inline bool available() { return getauxval(AT_HWCAP) & (1 << 7); }      // HWCAP_CRC32
#endif

#if defined(MQ_CRC_TARGET)
template <size_t STRETCH>
MQ_CRC_TARGET inline uint64_t triples(uint64_t r, const uint8_t*& p, size_t& n, const Shift& s) {
    for (; n >= 3 * STRETCH; n -= 3 * STRETCH, p += 3 * STRETCH) {
        uint64_t b = 0, c = 0;
        for (size_t line = 0; line < STRETCH; line += 64) {
            for (size_t k = 3; k < 6; k++)      // behind the end too: a prefetch never faults
                __builtin_prefetch(p + line + k * STRETCH);
            for (size_t i = line; i < line + 64; i += 8) {
                r = step8(r, load(p + i));
                b = step8(b, load(p + i + STRETCH));
                c = step8(c, load(p + i + 2 * STRETCH));
            }
        }
        r = over(s, over(s, static_cast<uint32_t>(r)) ^ static_cast<uint32_t>(b)) ^ c;
    }
    return r;
}

MQ_CRC_TARGET inline uint32_t native(uint32_t start, const uint8_t* p, size_t n) {
    uint64_t r = triples<LONG>(start, p, n, OVER_LONG);
    r = triples<SHORT>(r, p, n, OVER_SHORT);
    for (; n >= 8; n -= 8, p += 8)
        r = step8(r, load(p));
    for (; n; n--, p++)
        r = step1(static_cast<uint32_t>(r), *p);
    return static_cast<uint32_t>(r);
}
#endif

}  // namespace mq::crc32c_parts

namespace mq {

inline uint32_t crc32c_portable(uint32_t crc, const uint8_t* p, size_t n) {
    return ~crc32c_parts::portable(~crc, p, n);
}

inline bool crc32c_native() {
#if defined(MQ_CRC_TARGET)
    return crc32c_parts::available();
#else
    return false;
#endif
}

inline uint32_t crc32c(uint32_t crc, const uint8_t* p, size_t n) {
#if defined(MQ_CRC_TARGET)
    if (crc32c_parts::available())
        return ~crc32c_parts::native(~crc, p, n);
#endif
    return crc32c_portable(crc, p, n);
}

}  // namespace mq
