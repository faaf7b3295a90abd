"""Sleepers and crowds: see sleeper.pxd."""

from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from mqcore.reactor.includes cimport (
    close, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from mqcore.reactor.wakeup cimport eventfd_clear, eventfd_new, eventfd_signal


cdef Sleeper* _sleeper_new() noexcept nogil:
    cdef Sleeper* sleeper = <Sleeper*> calloc(1, sizeof(Sleeper))
    if sleeper != NULL:
        sleeper.fd = eventfd_new()
    return sleeper


cdef void _sleeper_free(Sleeper* sleeper) noexcept nogil:
    if sleeper.fd >= 0:
        close(sleeper.fd)
    free(sleeper.fds)
    free(sleeper.places)
    free(sleeper)


cdef bint crowd_init(Crowd* c) noexcept nogil:
    memset(<void*> c, 0, sizeof(Crowd))
    c.spare = _sleeper_new()
    if c.spare == NULL or c.spare.fd < 0:
        free(c.spare)
        return False
    pthread_mutex_init(&c.gate, NULL)
    return True


cdef void crowd_fini(Crowd* c) noexcept nogil:
    cdef Sleeper* sleeper
    while c.spare != NULL:
        sleeper = c.spare
        c.spare = sleeper.next
        _sleeper_free(sleeper)
    pthread_mutex_destroy(&c.gate)
    free(c.above)


cdef void crowd_abandon(Crowd* c) noexcept nogil:
    cdef Sleeper* sleeper
    cdef int i
    for i in range(2):
        sleeper = c.asleep if i == 0 else c.spare
        while sleeper != NULL:
            if sleeper.fd >= 0:
                close(sleeper.fd)
            sleeper = sleeper.next


cdef Sleeper* lie_down(Crowd* c, bint sleeps) noexcept nogil:
    cdef Sleeper* sleeper
    pthread_mutex_lock(&c.gate)
    sleeper = c.spare
    if sleeper != NULL:
        c.spare = sleeper.next
    else:
        sleeper = _sleeper_new()
    if sleeper != NULL and sleeps:
        sleeper.next = c.asleep
        c.asleep = sleeper
    pthread_mutex_unlock(&c.gate)
    return sleeper


cdef inline void _forget_poke(Sleeper* sleeper) noexcept nogil:
    if sleeper.poked:
        sleeper.poked = 0
        if sleeper.fd >= 0:
            eventfd_clear(sleeper.fd)


cdef void take_poke(Crowd* c, Sleeper* sleeper) noexcept nogil:
    """Before the sets are looked at: a change after this pokes again."""
    pthread_mutex_lock(&c.gate)
    _forget_poke(sleeper)
    pthread_mutex_unlock(&c.gate)


cdef void get_up(Crowd* c, Sleeper* sleeper, bint slept) noexcept nogil:
    cdef Sleeper** at = &c.asleep
    pthread_mutex_lock(&c.gate)
    if slept:
        while at[0] != sleeper:
            at = &at[0].next
        at[0] = sleeper.next
    _forget_poke(sleeper)
    sleeper.next = c.spare
    c.spare = sleeper
    pthread_mutex_unlock(&c.gate)


cdef bint sleeper_note(Sleeper* sleeper, int fd, short events, uint64_t id,
                       size_t at) noexcept nogil:
    cdef pollfd* fds
    cdef Place* places
    cdef size_t cap = sleeper.cap * 2 + 8
    if sleeper.n == sleeper.cap:
        fds = <pollfd*> realloc(sleeper.fds, cap * sizeof(pollfd))
        if fds == NULL:
            return False
        sleeper.fds = fds
        places = <Place*> realloc(sleeper.places, cap * sizeof(Place))
        if places == NULL:
            return False
        sleeper.places = places
        sleeper.cap = cap
    sleeper.fds[sleeper.n].fd = fd
    sleeper.fds[sleeper.n].events = events
    sleeper.fds[sleeper.n].revents = 0
    sleeper.places[sleeper.n].id = id
    sleeper.places[sleeper.n].at = at
    sleeper.n += 1
    return True


cdef void poke(Crowd* c, bint everybody) noexcept nogil:
    cdef Sleeper* sleeper
    cdef size_t i
    pthread_mutex_lock(&c.gate)
    sleeper = c.asleep
    while sleeper != NULL:
        if not sleeper.poked:
            sleeper.poked = 1
            if sleeper.fd >= 0:
                eventfd_signal(sleeper.fd)
        sleeper = sleeper.next
    for i in range(c.n_above):
        if everybody or c.above[i].on:
            poke(c.above[i].crowd, everybody)
    pthread_mutex_unlock(&c.gate)


cdef bint above_add(Crowd* c, Crowd* above) noexcept nogil:
    cdef Above* grown
    pthread_mutex_lock(&c.gate)
    grown = <Above*> realloc(c.above, (c.n_above + 1) * sizeof(Above))
    if grown != NULL:
        c.above = grown
        grown[c.n_above].crowd = above
        grown[c.n_above].on = True
        c.n_above += 1
    pthread_mutex_unlock(&c.gate)
    return grown != NULL


cdef void above_switch(Crowd* c, Crowd* above, bint on) noexcept nogil:
    cdef size_t i
    pthread_mutex_lock(&c.gate)
    for i in range(c.n_above):
        if c.above[i].crowd == above:
            c.above[i].on = on
    pthread_mutex_unlock(&c.gate)


cdef void above_drop(Crowd* c, Crowd* above) noexcept nogil:
    cdef size_t i
    pthread_mutex_lock(&c.gate)
    for i in range(c.n_above):
        if c.above[i].crowd == above:
            c.n_above -= 1
            c.above[i] = c.above[c.n_above]
            break
    pthread_mutex_unlock(&c.gate)


cdef Crowd* above_first(Crowd* c) noexcept nogil:
    cdef Crowd* first = NULL
    pthread_mutex_lock(&c.gate)
    if c.n_above:
        first = c.above[0].crowd
    pthread_mutex_unlock(&c.gate)
    return first
