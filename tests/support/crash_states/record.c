/* Preloaded into a child: what it does to files and folders of one file system, in order, with the
 * data, into a log. recording.py has the log's format. Calls are made one at a time, so that the
 * log's order is theirs.
 *
 * CRASH_ROOT names a folder on the file system, CRASH_LOG the log, which lies elsewhere.
 * crash_mark() adds a line of the test's own. crash_exit_at(n) ends the process in front of its
 * n-th operation from there on, as a kill would. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILLED = 99, MOST = 2048 };

struct record {
    uint64_t op, a, b, n, first, second;        /* bytes of the two texts that follow */
};

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static dev_t device;
static long left;

__attribute__((constructor)) static void begin(void) {
    struct stat found;
    const char *root = getenv("CRASH_ROOT"), *log = getenv("CRASH_LOG");
    if (root && log && stat(root, &found) == 0) {
        device = found.st_dev;
        out = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                           0600);
    }
}

static void put(char op, uint64_t a, uint64_t b, uint64_t n, const void *first, size_t m,
                const void *second, size_t k) {
    struct record head = {(uint64_t)op, a, b, n, m, k};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)first, m}, {(void *)second, k}};
    int error = errno;
    if (syscall(SYS_writev, out, parts, 3) != (long)(sizeof head + m + k)) abort();
    errno = error;
}

void crash_mark(const char *text) {
    pthread_mutex_lock(&one);
    if (out >= 0) put('M', 0, 0, 0, "", 0, text, strlen(text));
    pthread_mutex_unlock(&one);
}

void crash_exit_at(long n) { left = n; }

static void before(void) {
    if (left > 0 && --left == 0) syscall(SYS_exit_group, KILLED);
}

static int ours(int fd, struct stat *found) {
    int error = errno;
    int yes = out >= 0 && fd != out && syscall(SYS_fcntl, fd, F_GETFD) >= 0
        && fstat(fd, found) == 0 && found->st_dev == device;
    errno = error;
    return yes;
}

/* -- names: the number of their folder, and the last part -- */

struct name {
    uint64_t folder;
    const char *last;
};

static int place(int at, const char *path, struct name *it) {
    char parent[PATH_MAX];
    struct stat found;
    const char *slash = strrchr(path, '/');
    int error = errno, yes = 0;
    size_t n = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (out >= 0 && n < sizeof parent) {
        memcpy(parent, n ? path : ".", n ? n : 1);
        parent[n ? n : 1] = 0;
        it->last = slash ? slash + 1 : path;
        yes = fstatat(at, parent, &found, 0) == 0 && found.st_dev == device;
        it->folder = found.st_ino;
    }
    errno = error;
    return yes;
}

static uint64_t number(int at, const char *path) {
    struct stat found;
    int error = errno;
    uint64_t n = fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW) == 0 ? found.st_ino : 0;
    errno = error;
    return n;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    struct name it;
    struct stat found;
    uint64_t was;
    int fd;
    if (!(flags & (O_CREAT | O_TRUNC)) || !place(at, path, &it))
        return (int)syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&one);
    was = number(at, path);
    if (was == 0 || flags & O_TRUNC) before();
    fd = (int)syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && fstat(fd, &found) == 0) {
        if (was == 0) put('C', it.folder, found.st_ino, 0, it.last, strlen(it.last), "", 0);
        else if (flags & O_TRUNC) put('T', found.st_ino, 0, 0, "", 0, "", 0);
    }
    pthread_mutex_unlock(&one);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & O_CREAT) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return opened(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return opened(at, path, flags, mode);
}
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return opened(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return opened(at, path, flags, 0); }
int creat(const char *path, mode_t mode) {
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* -- bytes -- */

static ssize_t written(int fd, const struct iovec *iov, int n, int64_t at, int placed) {
    struct stat found;
    ssize_t done, copied = 0;
    char *data;
    int mine = ours(fd, &found) && S_ISREG(found.st_mode);
    if (mine) {
        pthread_mutex_lock(&one);
        before();
        fstat(fd, &found);
        if (!placed)
            at = syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND ? found.st_size
                                                            : lseek(fd, 0, SEEK_CUR);
    }
    done = placed ? syscall(SYS_pwritev, fd, iov, n, at, 0) : syscall(SYS_writev, fd, iov, n);
    if (mine) {
        if (done > 0 && (data = malloc(done)) != NULL) {
            for (int i = 0; i < n && copied < done; i++) {
                size_t some = iov[i].iov_len < (size_t)(done - copied) ? iov[i].iov_len
                                                                      : (size_t)(done - copied);
                memcpy(data + copied, iov[i].iov_base, some);
                copied += some;
            }
            put('W', found.st_ino, 0, at, "", 0, data, done);
            free(data);
        }
        pthread_mutex_unlock(&one);
    }
    return done;
}

static ssize_t single(int fd, const void *data, size_t n, int64_t at, int placed) {
    struct iovec iov = {(void *)data, n};
    return written(fd, &iov, 1, at, placed);
}

ssize_t write(int fd, const void *data, size_t n) {
    struct stat found;
    if (!ours(fd, &found)) return syscall(SYS_write, fd, data, n);
    return single(fd, data, n, 0, 0);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { return single(fd, data, n, at, 1); }
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) {
    return single(fd, data, n, at, 1);
}
ssize_t writev(int fd, const struct iovec *iov, int n) { return written(fd, iov, n, 0, 0); }
ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at) {
    return written(fd, iov, n, at, 1);
}
ssize_t pwritev64(int fd, const struct iovec *iov, int n, off_t at) {
    return written(fd, iov, n, at, 1);
}

int ftruncate(int fd, off_t size) {
    struct stat found;
    int rc, mine = ours(fd, &found);
    if (!mine) return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&one);
    before();
    rc = (int)syscall(SYS_ftruncate, fd, size);
    if (rc == 0) put('T', found.st_ino, 0, size, "", 0, "", 0);
    pthread_mutex_unlock(&one);
    return rc;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int truncate(const char *path, off_t size) {
    int fd = open(path, O_WRONLY | O_CLOEXEC), rc;
    if (fd < 0) return -1;
    rc = ftruncate(fd, size);
    close(fd);
    return rc;
}
int truncate64(const char *path, off_t size) { return truncate(path, size); }

static int synced(long call, int fd) {
    struct stat found;
    int rc, mine = ours(fd, &found);
    if (!mine) return (int)syscall(call, fd);
    pthread_mutex_lock(&one);
    before();
    rc = (int)syscall(call, fd);
    if (rc == 0) put('S', found.st_ino, 0, 0, "", 0, "", 0);
    pthread_mutex_unlock(&one);
    return rc;
}
int fsync(int fd) { return synced(SYS_fsync, fd); }
int fdatasync(int fd) { return synced(SYS_fdatasync, fd); }

/* -- folders -- */

int mkdirat(int at, const char *path, mode_t mode) {
    struct name it;
    int rc, mine = place(at, path, &it);
    if (!mine) return (int)syscall(SYS_mkdirat, at, path, mode);
    pthread_mutex_lock(&one);
    if (number(at, path) == 0) before();
    rc = (int)syscall(SYS_mkdirat, at, path, mode);
    if (rc == 0) put('D', it.folder, number(at, path), 0, it.last, strlen(it.last), "", 0);
    pthread_mutex_unlock(&one);
    return rc;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int at, const char *path, int flags) {
    struct name it;
    int rc, mine = place(at, path, &it);
    if (!mine) return (int)syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&one);
    if (number(at, path)) before();
    rc = (int)syscall(SYS_unlinkat, at, path, flags);
    if (rc == 0) put('U', it.folder, 0, 0, it.last, strlen(it.last), "", 0);
    pthread_mutex_unlock(&one);
    return rc;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int linkat(int from, const char *old, int at, const char *path, int flags) {
    struct name it;
    int rc, mine = place(at, path, &it);
    if (!mine) return (int)syscall(SYS_linkat, from, old, at, path, flags);
    pthread_mutex_lock(&one);
    before();
    rc = (int)syscall(SYS_linkat, from, old, at, path, flags);
    if (rc == 0) put('L', it.folder, number(at, path), 0, it.last, strlen(it.last), "", 0);
    pthread_mutex_unlock(&one);
    return rc;
}
int link(const char *old, const char *path) { return linkat(AT_FDCWD, old, AT_FDCWD, path, 0); }

int renameat2(int from, const char *old, int at, const char *path, unsigned flags) {
    struct name source, it;
    int rc, mine = place(from, old, &source) && place(at, path, &it);
    if (!mine) return (int)syscall(SYS_renameat2, from, old, at, path, flags);
    pthread_mutex_lock(&one);
    if (number(from, old)) before();
    rc = (int)syscall(SYS_renameat2, from, old, at, path, flags);
    if (rc == 0)
        put(flags ? 'X' : 'N', source.folder, it.folder, number(at, path), source.last,
            strlen(source.last), it.last, strlen(it.last));
    pthread_mutex_unlock(&one);
    return rc;
}
int renameat(int from, const char *old, int at, const char *path) {
    return renameat2(from, old, at, path, 0);
}
int rename(const char *old, const char *path) {
    return renameat2(AT_FDCWD, old, AT_FDCWD, path, 0);
}

/* -- what recording.py does not understand, and refuses -- */

static void strange(int fd, const char *what) {
    struct stat found;
    if (!ours(fd, &found)) return;
    pthread_mutex_lock(&one);
    put('X', found.st_ino, 0, 0, what, strlen(what), "", 0);
    pthread_mutex_unlock(&one);
}

void *mmap(void *at, size_t n, int access, int flags, int fd, off_t start) {
    if (fd >= 0 && access & PROT_WRITE && flags & MAP_SHARED) strange(fd, "mmap");
    return (void *)syscall(SYS_mmap, at, n, access, flags, fd, start);
}
void *mmap64(void *at, size_t n, int access, int flags, int fd, off_t start) {
    return mmap(at, n, access, flags, fd, start);
}
int fallocate(int fd, int mode, off_t at, off_t n) {
    strange(fd, "fallocate");
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}
int posix_fallocate(int fd, off_t at, off_t n) {
    strange(fd, "posix_fallocate");
    return syscall(SYS_fallocate, fd, 0, at, n) ? errno : 0;
}
ssize_t sendfile(int to, int from, off_t *at, size_t n) {
    strange(to, "sendfile");
    return syscall(SYS_sendfile, to, from, at, n);
}
ssize_t copy_file_range(int from, off_t *at, int to, off_t *start, size_t n, unsigned flags) {
    strange(to, "copy_file_range");
    return syscall(SYS_copy_file_range, from, at, to, start, n, flags);
}
