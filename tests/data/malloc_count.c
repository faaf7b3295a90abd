/* Preloaded into a process: counts the calls of malloc and its kin, by way of glibc's own names. */

#include <stddef.h>
#include <stdint.h>
#include <errno.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static uint64_t calls;

static void count(void) { __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED); }

uint64_t malloc_count_calls(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

void *malloc(size_t n) { count(); return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { count(); return __libc_calloc(n, size); }
void *realloc(void *old, size_t n) { count(); return __libc_realloc(old, n); }
void *memalign(size_t a, size_t n) { count(); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { count(); return __libc_memalign(a, n); }

int posix_memalign(void **out, size_t a, size_t n) {
    count();
    *out = __libc_memalign(a, n);
    return *out ? 0 : ENOMEM;
}
