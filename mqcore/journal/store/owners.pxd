"""Owners of producers, in a heap by their share, and the producers of each in the order in which
they were heard last: see producers.pxd. With the log's lock."""

from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from mqcore.journal.store.producers cimport Line, Owner, Producer, Producers


cdef inline size_t place_of(const Producers* p, uint64_t id) noexcept nogil:
    """MurmurHash3's finalizer."""
    cdef uint64_t x = id ^ p.secret
    x = (x ^ (x >> 33)) * <uint64_t> 0xFF51AFD7ED558CCDULL
    x = (x ^ (x >> 33)) * <uint64_t> 0xC4CEB9FE1A85EC53ULL
    return (x ^ (x >> 33)) & (p.cap - 1)


# -- owners ----------------------------------------------------------------------------------------

cdef inline double share_of(const Producers* p, const Owner* owner) noexcept nogil:
    return (<double> owner.bytes / <double> p.most_bytes
            + <double> (owner.once.n + owner.again.n) / <double> p.most)


cdef inline void settle(Producers* p, Owner* owner) noexcept nogil:
    """To its place in the heap: its share has changed."""
    cdef size_t i = owner.rank, k
    owner.share = share_of(p, owner)
    while i > 0 and p.heap[(i - 1) // 2].share < owner.share:
        p.heap[i] = p.heap[(i - 1) // 2]
        p.heap[i].rank = i
        i = (i - 1) // 2
    while 2 * i + 1 < p.owners:
        k = 2 * i + 1
        if k + 1 < p.owners and p.heap[k].share < p.heap[k + 1].share:
            k += 1
        if p.heap[k].share <= owner.share:
            break
        p.heap[i] = p.heap[k]
        p.heap[i].rank = i
        i = k
    p.heap[i] = owner
    owner.rank = i


cdef inline Owner* owner_of(Producers* p, uint64_t id) noexcept nogil:
    """NULL: no memory."""
    cdef size_t place = place_of(p, id)
    cdef Owner* owner = p.homes[place]
    while owner != NULL and owner.id != id:
        owner = owner.next
    if owner == NULL:
        owner = <Owner*> calloc(1, sizeof(Owner))
        if owner != NULL:
            owner.id = id
            owner.next = p.homes[place]
            p.homes[place] = owner
            owner.rank = p.owners
            p.heap[p.owners] = owner
            p.owners += 1
    return owner


cdef inline void disown(Producers* p, Owner* owner) noexcept nogil:
    """It has no producers left."""
    cdef Owner** at = &p.homes[place_of(p, owner.id)]
    cdef Owner* moved
    while at[0] != owner:
        at = &at[0].next
    at[0] = owner.next
    p.owners -= 1
    moved = p.heap[p.owners]
    if moved != owner:
        moved.rank = owner.rank
        settle(p, moved)
    free(owner)


# -- lines -----------------------------------------------------------------------------------------

cdef inline Line* line_of(Producer* one) noexcept nogil:
    return &one.owner.again if one.again else &one.owner.once


cdef inline void leave_line(Producer* one) noexcept nogil:
    cdef Line* line = line_of(one)
    if one.older != NULL:
        one.older.newer = one.newer
    else:
        line.oldest = one.newer
    if one.newer != NULL:
        one.newer.older = one.older
    else:
        line.newest = one.older
    line.n -= 1


cdef inline void join_line(Producers* p, Producer* one) noexcept nogil:
    """At its end."""
    cdef Line* line = line_of(one)
    one.older = line.newest
    one.newer = NULL
    if line.newest != NULL:
        line.newest.newer = one
    else:
        line.oldest = one
    line.newest = one
    line.n += 1
    p.clock += 1
    one.used = p.clock


cdef inline Producer* oldest_but(Line* line, Producer* kept) noexcept nogil:
    return line.oldest if line.oldest != kept else kept.newer


cdef inline Producer* silent_longest(Owner* owner, Producer* kept) noexcept nogil:
    cdef Producer* once = oldest_but(&owner.once, kept) if owner.once.n else NULL
    cdef Producer* again = oldest_but(&owner.again, kept) if owner.again.n else NULL
    if once != NULL and (again == NULL or 3 * owner.once.n > owner.again.n):
        return once
    return again
