"""Peers by routing id: who is written to under which. The ids that are made here are five bytes, 00
and a 31-bit counter with a random start (the form of a hop, `words`).

A pipe's `Pipe.data` is its Name. One that has gone, or was replaced, is found under its number only
until it is detached. So is a second link of a name, which gets the name when the first one ends.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from mqcore.base.cursor cimport store_be32
from mqcore.base.message cimport (
    MSG_MORE, MSG_ROUTING_ID, Msg, msg_close, msg_data, msg_init_copy, msg_size,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_NO_PEER, MQ_OK
from mqcore.protocols.routing.fair_queue cimport FairQueue, fq_attach, fq_detach
from mqcore.protocols.routing.peers cimport (
    Peers, hash_bytes, hash_number, peers_add, peers_find, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.ring cimport MARK_GONE
from mqcore.protocols.routing.stub cimport close_all
from mqcore.protocols.routing.words cimport HOP_MASK
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_NO_PEER, Host, Pipe, host_chance, pipe_drop_out, pipe_write,
)

cdef enum:                    # Pipe.mark
    MARK_SECOND = 4           # a second link of its name

cdef struct Name:             # Pipe.data
    Msg id                    # as recv hands it out
    uint64_t hash
    int64_t taken             # ns: when it was taken over from another link; 0: it was free

cdef struct Names:            # names_init
    Peers by_id               # who is written to under it
    Peers by_number           # by Pipe.id: all that are attached
    size_t seconds            # pipes with MARK_SECOND
    uint64_t seed
    uint32_t next_id


cdef inline void names_init(Names* t, Host* host) noexcept nogil:
    t.seed = host_chance(host)
    t.next_id = <uint32_t> (t.seed >> 32)


cdef inline void names_fini(Names* t) noexcept nogil:
    peers_fini(&t.by_id)
    peers_fini(&t.by_number)


cdef inline Name* name_of(Pipe* pipe) noexcept nogil:
    return <Name*> pipe.data


cdef inline bint name_is(Pipe* pipe, const uint8_t* id, size_t size) noexcept nogil:
    cdef Msg* own = &name_of(pipe).id
    return msg_size(own) == size and memcmp(msg_data(own), id, size) == 0


cdef inline Pipe* names_find(Names* t, const uint8_t* id, size_t size) noexcept nogil:
    cdef uint64_t hash = hash_bytes(id, size, t.seed)
    cdef size_t step = 0
    cdef Pipe* p
    while True:
        p = peers_find(&t.by_id, hash, &step)
        if p == NULL or name_is(p, id, size):
            return p


cdef inline Pipe* names_number(Names* t, uint32_t number) noexcept nogil:
    return peers_number(&t.by_number, number)


cdef inline void _names_make_id(Names* t, uint8_t* id) noexcept nogil:
    """The next free one. Peers may announce ids that look like ours."""
    while True:
        t.next_id += 1
        id[0] = 0
        store_be32(id + 1, t.next_id & HOP_MASK)
        if names_find(t, id, 5) == NULL:
            return


cdef inline Name* name_new(Names* t, Pipe* pipe) noexcept nogil:
    """What the peer goes by, or an id that is made for it. NULL: out of memory."""
    cdef uint8_t[5] made
    cdef const uint8_t* id = pipe.routing_id
    cdef size_t size = pipe.routing_id_size
    cdef Name* name = <Name*> calloc(1, sizeof(Name))
    if name == NULL:
        return NULL
    if id == NULL or size == 0:
        _names_make_id(t, &made[0])
        id = &made[0]
        size = 5
    if msg_init_copy(&name.id, pipe.host.pool, id, size):
        free(name)
        return NULL
    name.id.flags = MSG_ROUTING_ID | MSG_MORE
    name.id.peer = pipe.id
    name.hash = hash_bytes(id, size, t.seed)
    return name


cdef inline void name_free(Name* name) noexcept nogil:
    msg_close(&name.id)
    free(name)


cdef inline int names_enter(Names* t, FairQueue* inn, Pipe* pipe, Name* name) noexcept nogil:
    """Into both tables and the queue, or into none; a second link is in no table of names. The name
    is the pipe's then. Status."""
    cdef int rc = fq_attach(inn, pipe)
    if rc:
        return rc
    rc = peers_add(&t.by_number, hash_number(pipe.id), pipe)
    if rc == MQ_OK and pipe.mark & MARK_SECOND:
        t.seconds += 1
    elif rc == MQ_OK:
        rc = peers_add(&t.by_id, name.hash, pipe)
        if rc:
            peers_remove(&t.by_number, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(inn, pipe)
        return rc
    pipe.data = name
    return MQ_OK


cdef inline void names_unname(Names* t, Pipe* pipe) noexcept nogil:
    """It is written to no more, under no name; twice does nothing."""
    if pipe.mark & MARK_GONE:
        return
    pipe.mark |= MARK_GONE
    if pipe.mark & MARK_SECOND:
        t.seconds -= 1
    else:
        peers_remove(&t.by_id, name_of(pipe).hash, pipe)


cdef inline void names_pass_on(Names* t, Pipe* pipe) noexcept nogil:
    """It has ended: a second link gets its name, the oldest if there are several."""
    cdef Pipe* heir = NULL
    cdef Pipe* p
    cdef Msg* id = &name_of(pipe).id
    cdef size_t i
    if t.seconds == 0 or names_find(t, msg_data(id), msg_size(id)) != NULL:
        return
    for i in range(t.by_number.cap):
        p = t.by_number.at[i].pipe
        if (p != NULL and p.mark & (MARK_SECOND | MARK_GONE) == MARK_SECOND
                and (heir == NULL or p.id < heir.id)
                and name_is(p, msg_data(id), msg_size(id))):
            heir = p
    if heir != NULL and peers_add(&t.by_id, name_of(heir).hash, heir) == MQ_OK:
        heir.mark &= ~<uint32_t> MARK_SECOND
        t.seconds -= 1


cdef inline void names_leave(Names* t, FairQueue* inn, Pipe* pipe) noexcept nogil:
    names_unname(t, pipe)
    peers_remove(&t.by_number, hash_number(pipe.id), pipe)
    fq_detach(inn, pipe)
    name_free(name_of(pipe))
    pipe.data = NULL


cdef inline int named_write(Host* host, Pipe* pipe, Msg* parts, size_t n,
                            bint mandatory) noexcept nogil:
    """To a pipe that was found, or NULL. MQ_OK, MQ_DROPPED (the parts are closed), or what send
    returns."""
    cdef int rc
    if pipe == NULL or pipe.mark & MARK_GONE:
        if mandatory:
            return MQ_NO_PEER
        host.dropped[DROP_NO_PEER] += 1
    else:
        rc = pipe_write(pipe, parts, n)
        if rc != MQ_FULL or mandatory:
            return rc
        pipe_drop_out(pipe, DROP_FULL)
    close_all(parts, n)
    return MQ_DROPPED
