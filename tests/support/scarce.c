/* Preloaded into a test's child: calls that fail when the test says so.
 *
 * scarce_memory(1): malloc fails on I/O threads for blocks of 100 to 400 bytes, which is the size of
 * notes. scarce_watches(1): no socket can be added to an epoll set; (2): no epoll set or eventfd. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

extern void *__libc_malloc(size_t size);
static volatile int no_memory, no_watches;

void scarce_memory(int on) { no_memory = on; }
void scarce_watches(int on) { no_watches = on; }

void *malloc(size_t size) {
    char name[16];
    if (no_memory && size >= 100 && size <= 400
            && pthread_getname_np(pthread_self(), name, sizeof name) == 0
            && strncmp(name, "mqcore-io", 9) == 0) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

int epoll_ctl(int set, int op, int fd, struct epoll_event *event) {
    static int (*next)(int, int, int, struct epoll_event *);
    struct stat found;
    if (no_watches && op == EPOLL_CTL_ADD && fstat(fd, &found) == 0
            && (no_watches == 1 ? S_ISSOCK(found.st_mode) : (found.st_mode & S_IFMT) == 0)) {
        errno = ENOSPC;
        return -1;
    }
    if (next == NULL)
        next = (int (*)(int, int, int, struct epoll_event *)) dlsym(RTLD_NEXT, "epoll_ctl");
    return next(set, op, fd, event);
}
