"""The logs of a process: see process.pxd. The list and the bell live as long as the process."""

from libc.stdint cimport int64_t
from posix.time cimport timespec

from mqcore.journal.store.includes cimport (
    close, monotonic_cond_init, pthread_atfork, pthread_cond_signal, pthread_cond_t,
    pthread_cond_timedwait, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)
from mqcore.journal.store.log cimport FORKED, NEVER, Log, now_ns

cdef struct Shared:
    pthread_mutex_t lock      # over the list and the count
    Log* first
    int forks
    pthread_mutex_t bell_lock
    pthread_cond_t bell
    int64_t due               # the earliest requested time; NEVER: none

cdef Shared SHARED


# -- forks -----------------------------------------------------------------------------------------

cdef void log_enlist(Log* log) noexcept nogil:
    pthread_mutex_lock(&SHARED.lock)
    log.after = SHARED.first
    log.before = NULL
    if SHARED.first != NULL:
        SHARED.first.before = log
    SHARED.first = log
    pthread_mutex_unlock(&SHARED.lock)


cdef void log_delist(Log* log) noexcept nogil:
    pthread_mutex_lock(&SHARED.lock)
    if log.before != NULL:
        log.before.after = log.after
    else:
        SHARED.first = log.after
    if log.after != NULL:
        log.after.before = log.before
    pthread_mutex_unlock(&SHARED.lock)


cpdef int forks() noexcept nogil:
    return SHARED.forks


cdef void before_fork() noexcept nogil:
    pthread_mutex_lock(&SHARED.lock)


cdef void in_parent() noexcept nogil:
    pthread_mutex_unlock(&SHARED.lock)


cdef void in_child() noexcept nogil:
    """The only thread of the child, before fork() returns: nothing here may allocate."""
    cdef Log* log = SHARED.first
    pthread_mutex_init(&SHARED.lock, NULL)
    bell_init()
    SHARED.forks += 1
    while log != NULL:
        pthread_mutex_init(&log.lock, NULL)
        pthread_mutex_init(&log.sync_lock, NULL)
        pthread_mutex_init(&log.flight, NULL)
        if log.fd >= 0:
            close(log.fd)
        if log.folder >= 0:
            close(log.folder)
        if log.shown >= 0:
            close(log.shown)
        log.fd = log.folder = log.shown = -1
        log.barred = FORKED
        log.broken = log.stalled = 0
        log = log.after


# -- the flusher's bell ----------------------------------------------------------------------------

cdef void bell_init() noexcept nogil:
    pthread_mutex_init(&SHARED.bell_lock, NULL)
    monotonic_cond_init(&SHARED.bell)
    SHARED.due = NEVER


cdef void bell_ring(int64_t due) noexcept nogil:
    pthread_mutex_lock(&SHARED.bell_lock)
    if due < SHARED.due:
        SHARED.due = due
        pthread_cond_signal(&SHARED.bell)
    pthread_mutex_unlock(&SHARED.bell_lock)


def ring(int64_t due=0) -> None:
    """Wake the flusher now, or at this time (time.monotonic_ns())."""
    bell_ring(due)


def quiet() -> None:
    """The flusher now checks every log: earlier requests are done."""
    pthread_mutex_lock(&SHARED.bell_lock)
    SHARED.due = NEVER
    pthread_mutex_unlock(&SHARED.bell_lock)


def wait(int64_t due) -> None:
    """Until `due` (time.monotonic_ns()), or until an earlier time that a log asks for."""
    cdef timespec until
    cdef int64_t at = NEVER
    bell_ring(due)
    with nogil:
        pthread_mutex_lock(&SHARED.bell_lock)
        while SHARED.due > now_ns():
            at = SHARED.due if SHARED.due < now_ns() + LONGEST else now_ns() + LONGEST
            until.tv_sec = at // 1000000000
            until.tv_nsec = at % 1000000000
            pthread_cond_timedwait(&SHARED.bell, &SHARED.bell_lock, &until)
        pthread_mutex_unlock(&SHARED.bell_lock)


cdef enum:
    LONGEST = 3600000000000   # longest single wait, ns

pthread_mutex_init(&SHARED.lock, NULL)
bell_init()
pthread_atfork(before_fork, in_parent, in_child)
