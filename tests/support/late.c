/* Preloaded into a whole test run (tools/steady.py --late): threads that wake late, as on a machine
 * that is far too busy, without the cost of one. After some waits that have ended in an event (epoll)
 * or with a semaphore (Python's locks), the thread sleeps for up to MOST_US before it goes on.
 *
 * late_wakes() counts the late ones of this process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

enum {
    EVENTS = 12,            /* one in so many epoll waits is late */
    SEMAPHORES = 80,        /* one in so many semaphore waits */
    MOST_US = 30000,
    EPOLL_PWAIT2 = 441      /* mqcore calls it by number */
};

static volatile long wakes;
static __thread uint64_t dice;

long late_wakes(void) { return wakes; }

static uint64_t roll(void) {
    if (dice == 0) {        /* another order in each thread and each run */
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        dice = ((uint64_t)t.tv_nsec * 2654435761u ^ (uint64_t)(uintptr_t)&dice << 20) | 1;
    }
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

static void perhaps_late(int one_in) {
    int error = errno;
    uint64_t n = roll() >> 11;
    if (n % one_in == 0) {
        struct timespec t = {0, 1000L * (1 + (n >> 20) % MOST_US)};
        __sync_fetch_and_add(&wakes, 1);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
    }
    errno = error;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (real == 0) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int epoll_wait(int set, struct epoll_event *found, int cap, int ms) {
    REAL(epoll_wait);
    int n = real(set, found, cap, ms);
    if (n > 0) perhaps_late(EVENTS);
    return n;
}

int epoll_pwait(int set, struct epoll_event *found, int cap, int ms, const sigset_t *mask) {
    REAL(epoll_pwait);
    int n = real(set, found, cap, ms, mask);
    if (n > 0) perhaps_late(EVENTS);
    return n;
}

long syscall(long number, ...) {
    static long (*real)(long, ...);
    va_list rest;
    long a[6];
    if (real == 0) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    long n = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == EPOLL_PWAIT2 && n > 0) perhaps_late(EVENTS);
    return n;
}

int sem_wait(sem_t *sem) {
    REAL(sem_wait);
    int error = real(sem);
    if (error == 0) perhaps_late(SEMAPHORES);
    return error;
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *end) {
    REAL(sem_clockwait);
    int error = real(sem, clock, end);
    if (error == 0) perhaps_late(SEMAPHORES);
    return error;
}
