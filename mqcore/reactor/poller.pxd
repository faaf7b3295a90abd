"""The poller's ops table: what the engine needs of epoll, and of any stand-in for it.

A *set* watches descriptors, each for IN, OUT and hang-up, and reports each edge once. A thread that
harvests an event must handle it. Sets nest: an I/O thread's set watches the sets of its sockets.
Any thread may add and remove. Several threads may wait on one set; each edge goes to one of them.
"""

from libc.stdint cimport int64_t, uint32_t
from posix.signal cimport sigset_t

cdef enum:
    READY_IN = 1
    READY_OUT = 2
    READY_HUP = 4             # peer closed or error: read to the end

cdef struct Ready:
    void* arg
    uint32_t what

cdef struct PollerOps:
    uint32_t abi
    const char* name
    void* (*open)() noexcept nogil                        # NULL: errno says why
    void (*close)(void* set) noexcept nogil               # never touches what it watches (fork)
    # Watch fd edge-triggered; -1: errno. An fd that is ready when it is added gives an edge.
    # is_bell(arg): an eventfd, watched for IN alone; each write is an edge, read or not (the set
    # may read it).
    int (*add)(void* set, int fd, void* arg) noexcept nogil
    void (*remove)(void* set, int fd) noexcept nogil
    # Watch a set: level-triggered, ready while the child has edges to harvest. `arm` 0 and 1
    # switches it off and on; on with edges waiting is ready at once.
    int (*add_set)(void* set, void* child, void* arg) noexcept nogil
    void (*arm_set)(void* set, void* child, void* arg, bint on) noexcept nogil
    # Up to cap events. timeout in nanoseconds, -1 for ever, 0 look only (rounded up to what the
    # system can). mask: signals as for ppoll, or NULL. -1: interrupted by a signal.
    int (*wait)(void* set, Ready* out, int cap, int64_t timeout,
                const sigset_t* mask) noexcept nogil
    # Edges of READY_OUT or not, from now on; an fd that is added has them. Enabling may give one.
    void (*watch_out)(void* set, int fd, void* arg, bint on) noexcept nogil
    int (*descriptor)(void* set) noexcept nogil           # to nest in a foreign loop; -1: none


cdef inline bint is_bell(void* arg) noexcept nogil:
    """NULL, or an odd address: what rings is an eventfd."""
    return arg == NULL or <size_t> arg & 1
