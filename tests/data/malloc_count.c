/* Preloaded into a process: counts calls of malloc and its kin, and blocks alive, by way of glibc's
   own names. */

#include <stddef.h>
#include <stdint.h>
#include <errno.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static uint64_t calls;
static int64_t live;

static void *count(void *block) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (block)
        __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
    return block;
}

uint64_t malloc_count_calls(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }
int64_t malloc_count_live(void) { return __atomic_load_n(&live, __ATOMIC_RELAXED); }

void *malloc(size_t n) { return count(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return count(__libc_calloc(n, size)); }
void *memalign(size_t a, size_t n) { return count(__libc_memalign(a, n)); }
void *aligned_alloc(size_t a, size_t n) { return count(__libc_memalign(a, n)); }

void *realloc(void *old, size_t n) {
    void *block = __libc_realloc(old, n);
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&live, (old == NULL && block) - (old && n == 0), __ATOMIC_RELAXED);
    return block;
}

int posix_memalign(void **out, size_t a, size_t n) {
    *out = count(__libc_memalign(a, n));
    return *out ? 0 : ENOMEM;
}

void free(void *block) {
    if (block)
        __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
    __libc_free(block);
}
