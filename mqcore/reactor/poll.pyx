"""poll(2) behind the poller's table: see poller.pxd. The kernel keeps nothing here, so a set does.

Edges: each direction of a descriptor is armed, is reported once and then disarmed until `rearm`;
hang-up is reported once for ever. A descriptor whose arg is NULL is an eventfd that nobody reads:
the set reads it as it reports it, so that each write is an edge and a full counter does not spin.

Nesting: whoever waits on a set polls the armed descriptors of its armed children too, and takes
nothing of theirs: a child with something to harvest is ready, as often as one looks.

A change while somebody sleeps: who changes a set pokes its sleepers and those of the sets above it;
they look at the sets again (sleeper.pxd).

Locks: `lock` guards what a set watches and is taken from a set to its child; `gate` guards who
sleeps and who is above, and is taken from a child to the set above; a gate may be taken under a
lock, never a lock under a gate. Nothing sleeps in poll with either. A set and one nested in it may
not be closed at the same time by two threads.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from posix.signal cimport sigset_t
from posix.time cimport timespec

from mqcore.base.clock cimport now_ns
from mqcore.reactor.includes cimport (
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, getpid, ppoll,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock, read,
)
from mqcore.reactor.poller cimport READY_HUP, READY_IN, READY_OUT, PollerOps, Ready, is_bell
from mqcore.reactor.sleeper cimport (
    Crowd, Place, Sleeper, above_add, above_drop, above_first, above_switch, crowd_abandon,
    crowd_fini, crowd_init, get_up, lie_down, poke, sleeper_note, take_poke,
)

cdef enum:
    ALL = READY_IN | READY_OUT | READY_HUP
    BLIND_NS = 10000000       # how often a thread that nobody can poke, having no eventfd, looks

cdef struct PollSet

cdef struct Entry:            # one thing that is watched
    int fd                    # -1: a nested set
    uint32_t want             # READY_* that are armed; a nested set: 1 or 0
    PollSet* child
    void* arg
    uint64_t id               # never used twice in its set
    uint64_t reported         # the harvest that reported this child

cdef struct PollSet:
    Crowd crowd               # first: the crowd's address is the set's
    pthread_mutex_t lock
    Entry* entries
    size_t n
    size_t cap
    uint64_t last_id
    uint64_t harvests
    size_t turn               # where the next harvest begins, so that a small cap starves nobody
    int pid


# -- what is watched: under the set's lock -------------------------------------------------------

cdef Entry* _of_fd(PollSet* s, int fd) noexcept nogil:
    cdef size_t i
    for i in range(s.n):
        if s.entries[i].fd == fd:
            return &s.entries[i]
    return NULL


cdef Entry* _of_child(PollSet* s, PollSet* child) noexcept nogil:
    cdef size_t i
    for i in range(s.n):
        if s.entries[i].child == child:
            return &s.entries[i]
    return NULL


cdef Entry* _of_place(PollSet* s, const Place* place) noexcept nogil:
    """The entry that was polled, if it is still there."""
    cdef size_t i
    if place.at < s.n and s.entries[place.at].id == place.id:
        return &s.entries[place.at]
    for i in range(s.n):
        if s.entries[i].id == place.id:
            return &s.entries[i]
    return NULL


cdef Entry* _entry_new(PollSet* s, int fd, PollSet* child, void* arg) noexcept nogil:
    cdef Entry* e
    if s.n == s.cap:
        e = <Entry*> realloc(s.entries, (s.cap * 2 + 4) * sizeof(Entry))
        if e == NULL:
            return NULL
        s.entries = e
        s.cap = s.cap * 2 + 4
    e = &s.entries[s.n]
    s.n += 1
    s.last_id += 1
    e.fd = fd
    e.child = child
    e.arg = arg
    e.id = s.last_id
    e.reported = 0
    e.want = 1 if child != NULL else ALL
    return e


cdef void _entry_drop(PollSet* s, Entry* e) noexcept nogil:
    s.n -= 1
    e[0] = s.entries[s.n]


# -- the table's calls, all but wait -------------------------------------------------------------

cdef void* _open() noexcept nogil:
    cdef PollSet* s = <PollSet*> calloc(1, sizeof(PollSet))
    if s == NULL:
        return NULL
    if not crowd_init(&s.crowd):
        free(s)
        return NULL
    pthread_mutex_init(&s.lock, NULL)
    s.pid = getpid()
    return s


cdef void _forget(PollSet* s, PollSet* child) noexcept nogil:
    cdef Entry* e
    pthread_mutex_lock(&s.lock)
    e = _of_child(s, child)
    if e != NULL:
        _entry_drop(s, e)
    above_drop(&child.crowd, &s.crowd)
    pthread_mutex_unlock(&s.lock)


cdef void _close(void* set) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Crowd* above
    cdef size_t i
    if s.pid != getpid():     # a forked child: locks may be held by threads that are not here
        crowd_abandon(&s.crowd)
        return
    while True:
        above = above_first(&s.crowd)
        if above == NULL:
            break
        _forget(<PollSet*> above, s)
        poke(above, True)     # nobody goes on holding descriptors that will be closed next
    for i in range(s.n):
        if s.entries[i].child != NULL:
            above_drop(&s.entries[i].child.crowd, &s.crowd)
    crowd_fini(&s.crowd)
    pthread_mutex_destroy(&s.lock)
    free(s.entries)
    free(s)


cdef int _add(void* set, int fd, void* arg) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Entry* e = NULL
    pthread_mutex_lock(&s.lock)
    if fd >= 0 and _of_fd(s, fd) == NULL:
        e = _entry_new(s, fd, NULL, arg)
    pthread_mutex_unlock(&s.lock)
    if e == NULL:
        return -1
    poke(&s.crowd, False)
    return 0


cdef void _remove(void* set, int fd) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Entry* e
    pthread_mutex_lock(&s.lock)
    e = _of_fd(s, fd) if fd >= 0 else NULL
    if e != NULL:
        _entry_drop(s, e)
    pthread_mutex_unlock(&s.lock)
    # a thread in poll keeps the connection open after its descriptor is closed: it must look again
    poke(&s.crowd, True)


cdef int _add_set(void* set, void* child, void* arg) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Entry* e
    pthread_mutex_lock(&s.lock)
    e = _entry_new(s, -1, <PollSet*> child, arg)
    if e != NULL and not above_add(<Crowd*> child, &s.crowd):
        s.n -= 1
        e = NULL
    pthread_mutex_unlock(&s.lock)
    if e == NULL:
        return -1
    poke(&s.crowd, False)
    return 0


cdef void _arm_set(void* set, void* child, void* arg, bint on) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Entry* e
    pthread_mutex_lock(&s.lock)
    e = _of_child(s, <PollSet*> child)
    if e != NULL:
        e.want = on
        e.arg = arg
        above_switch(<Crowd*> child, &s.crowd, on)
    pthread_mutex_unlock(&s.lock)
    if on:
        poke(&s.crowd, False)       # off: who sleeps wakes once for nothing at worst


cdef void _rearm(void* set, int fd, uint32_t what) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Entry* e
    cdef bint more = False
    what &= READY_IN | READY_OUT
    pthread_mutex_lock(&s.lock)
    e = _of_fd(s, fd) if fd >= 0 else NULL
    if e != NULL and what & ~e.want:
        e.want |= what
        more = True
    pthread_mutex_unlock(&s.lock)
    if more:
        poke(&s.crowd, False)


cdef int _descriptor(void* set) noexcept nogil:
    return -1


# -- waiting -------------------------------------------------------------------------------------

cdef bint _look_over(Sleeper* sleeper, PollSet* s, uint64_t id, size_t at) noexcept nogil:
    """Note everything of s that is armed; id: the entry of the set above by which we came here."""
    cdef size_t i
    cdef Entry* e
    cdef short events
    cdef bint good = True
    pthread_mutex_lock(&s.lock)
    for i in range(s.n):
        e = &s.entries[i]
        if not e.want:
            continue
        if e.child != NULL:
            good = good and _look_over(sleeper, e.child, id or e.id, at if id else i)
            continue
        events = 0
        if e.want & READY_IN:
            events |= POLLIN
        if e.want & READY_OUT and not is_bell(e.arg):
            events |= POLLOUT
        if e.want & READY_HUP:
            events |= POLLRDHUP
        good = good and sleeper_note(sleeper, e.fd, events, id or e.id, at if id else i)
    pthread_mutex_unlock(&s.lock)
    return good


cdef int _poll(Sleeper* sleeper, int64_t left, const sigset_t* mask) noexcept nogil:
    cdef timespec t
    if sleeper.fd < 0 and (left < 0 or left > BLIND_NS):
        left = BLIND_NS
    t.tv_sec = left // 1000000000
    t.tv_nsec = left % 1000000000
    return ppoll(sleeper.fds, sleeper.n, &t if left >= 0 else NULL, mask)


cdef uint32_t _edge(Entry* e, short revents) noexcept nogil:
    """What of it is news; disarms that."""
    cdef uint32_t what = 0
    cdef uint64_t count
    cdef bint over = revents & (POLLHUP | POLLERR)   # poll says so whether it is asked or not
    if is_bell(e.arg):
        return READY_IN if revents & POLLIN and read(e.fd, &count, 8) == 8 else 0
    if revents & POLLIN or over:
        what |= READY_IN
    if revents & POLLOUT or over:
        what |= READY_OUT
    if revents & POLLRDHUP or over:
        what |= READY_HUP
    what &= e.want
    e.want &= ~what
    return what


cdef int _harvest(PollSet* s, Sleeper* sleeper, Ready* out, int cap) noexcept nogil:
    """What poll has found and nobody has taken meanwhile."""
    cdef size_t i, k
    cdef Entry* e
    cdef uint32_t what
    cdef int found = 0
    pthread_mutex_lock(&s.lock)
    s.harvests += 1
    i = s.turn % sleeper.n
    for k in range(sleeper.n):
        if found == cap:
            break
        e = NULL
        if sleeper.fds[i].revents and sleeper.places[i].id:
            e = _of_place(s, &sleeper.places[i])
        if e != NULL and e.want:
            what = 0
            if e.child != NULL:
                what = READY_IN if e.reported != s.harvests else 0
                e.reported = s.harvests
            elif sleeper.fds[i].revents & POLLNVAL:
                _entry_drop(s, e)     # closed without being removed: it is watched no more
            else:
                what = _edge(e, sleeper.fds[i].revents)
            if what:
                out[found].arg = e.arg
                out[found].what = what
                found += 1
        i = i + 1 if i + 1 < sleeper.n else 0
    s.turn = i
    pthread_mutex_unlock(&s.lock)
    return found


cdef int _wait(void* set, Ready* out, int cap, int64_t timeout,
               const sigset_t* mask) noexcept nogil:
    cdef PollSet* s = <PollSet*> set
    cdef Sleeper* sleeper = lie_down(&s.crowd, timeout != 0)
    cdef int64_t left = timeout
    cdef int64_t deadline = 0
    cdef int n
    if sleeper == NULL:
        return -1
    if timeout > 0:
        deadline = now_ns() + timeout
        if deadline < 0:
            deadline = (<int64_t> 1 << 62)
    while True:
        take_poke(&s.crowd, sleeper)
        sleeper.n = 0
        n = -1
        if sleeper_note(sleeper, sleeper.fd, POLLIN, 0, 0) and _look_over(sleeper, s, 0, 0):
            n = _poll(sleeper, left, mask)
        if n > 0:
            n = _harvest(s, sleeper, out, cap)
        if n != 0 or timeout == 0:
            break
        if timeout > 0:       # poked, beaten to it, or time is up
            left = deadline - now_ns()
            if left <= 0:
                break
    get_up(&s.crowd, sleeper, timeout != 0)
    return n


cdef PollerOps OPS
OPS.abi = 1
OPS.name = b"poll"
OPS.open = _open
OPS.close = _close
OPS.add = _add
OPS.remove = _remove
OPS.add_set = _add_set
OPS.arm_set = _arm_set
OPS.wait = _wait
OPS.rearm = _rearm
OPS.watch_out = NULL
OPS.descriptor = _descriptor


cdef const PollerOps* poll_ops() noexcept nogil:
    return &OPS
