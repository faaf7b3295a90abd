"""Who sleeps in poll(2) on a set, and how a change of the set reaches them: see poll.pyx.

Every waiting thread has an eventfd of its own among what it polls: one for all of them could be
read by the first to wake, and the others would go on sleeping on what they saw before.
`gate` guards a crowd; it is taken from a nested set's crowd to that of the set above, never back.
"""

from libc.stdint cimport uint32_t, uint64_t

from mqcore.reactor.includes cimport pollfd, pthread_mutex_t

cdef struct Place:            # whose pollfd this is: an entry of the set that is waited on
    uint64_t id               # 0: the sleeper's own eventfd
    size_t at                 # where the entry was

cdef struct Sleeper:          # one waiting thread; kept for the next one
    Sleeper* next
    int fd                    # -1: none to be had
    uint32_t poked
    pollfd* fds               # the thread's own, as it goes to poll
    Place* places
    size_t n
    size_t cap

cdef struct Above:
    Crowd* crowd
    bint on                   # it watches us now

cdef struct Crowd:
    pthread_mutex_t gate
    Sleeper* asleep
    Sleeper* spare
    Above* above              # the crowds of the sets that watch ours
    size_t n_above

cdef bint crowd_init(Crowd* c) noexcept nogil             # False: errno; nothing is left
cdef void crowd_fini(Crowd* c) noexcept nogil             # nobody sleeps
cdef void crowd_abandon(Crowd* c) noexcept nogil          # forked child: close descriptors only
# A sleeper for this thread; NULL: no memory. If it sleeps, a change pokes it from now on.
cdef Sleeper* lie_down(Crowd* c, bint sleeps) noexcept nogil
cdef void take_poke(Crowd* c, Sleeper* sleeper) noexcept nogil   # then look at the sets, then poll
cdef void get_up(Crowd* c, Sleeper* sleeper, bint slept) noexcept nogil
cdef bint sleeper_note(Sleeper* sleeper, int fd, short events, uint64_t id,
                       size_t at) noexcept nogil          # False: no memory
# The set has changed: its sleepers look again, and those above that watch it. `everybody`: those
# too that do not watch it any more but may still have its descriptors in their hands.
cdef void poke(Crowd* c, bint everybody) noexcept nogil
cdef bint above_add(Crowd* c, Crowd* above) noexcept nogil       # switched on; False: no memory
cdef void above_switch(Crowd* c, Crowd* above, bint on) noexcept nogil
cdef void above_drop(Crowd* c, Crowd* above) noexcept nogil
cdef Crowd* above_first(Crowd* c) noexcept nogil                 # NULL: none
