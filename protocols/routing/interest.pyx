"""The subscriber's side: see interest.pxd."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc

from mqcore.base.message cimport MSG_CANCEL, MSG_SUBSCRIBE, Msg, msg_close, msg_init_copy
from mqcore.base.status cimport MQ_INVALID, MQ_NOMEM, MQ_OK
from mqcore.protocols.routing.distribute cimport (
    targets_fini, targets_join, targets_leave, targets_send,
)
from mqcore.protocols.routing.topics cimport (
    topics_find, topics_fini, topics_first, topics_next, topics_put, topics_remove,
)
from mqcore.spi.pipe cimport pipe_write_always


cdef uint64_t OWN = 0xffffffff


cdef int interest_attach(Interest* it, Pipe* pipe) noexcept nogil:
    cdef size_t size = 0
    cdef uint64_t value
    cdef Msg m
    cdef int rc = targets_join(&it.peers, pipe)
    if rc:
        return rc
    value = topics_first(&it.topics, it.path, &size)
    while value:
        rc = msg_init_copy(&m, pipe.host.pool, it.path, size)
        if rc == MQ_OK:
            m.flags = MSG_SUBSCRIBE
            rc = pipe_write_always(pipe, &m, 1)
            if rc:
                msg_close(&m)
        if rc:                # a publisher that does not know it all is worse than none
            targets_leave(&it.peers, pipe)
            return rc
        value = topics_next(&it.topics, it.path, &size)
    return MQ_OK


cdef void interest_hangup(Interest* it, Pipe* pipe) noexcept nogil:
    targets_leave(&it.peers, pipe)


cdef int _more(Interest* it, const uint8_t* topic, size_t size, uint64_t one) noexcept nogil:
    cdef uint64_t* count
    cdef uint8_t* path
    if size >= it.path_cap:
        path = <uint8_t*> realloc(it.path, size * 2 + 64)
        if path == NULL:
            return MQ_NOMEM
        it.path = path
        it.path_cap = size * 2 + 64
    count = topics_put(&it.topics, topic, size)
    if count == NULL:
        return MQ_NOMEM
    count[0] += one
    return MQ_OK


cdef int _less(Interest* it, const uint8_t* topic, size_t size, uint64_t mask, uint64_t one,
               bint* tell) noexcept nogil:
    """mask: which references are meant; one: of them, or all of them if it is the mask."""
    cdef uint64_t* count = topics_find(&it.topics, topic, size)
    cdef uint64_t rest
    if count == NULL or count[0] & mask == 0:
        return MQ_INVALID
    rest = count[0] & ~mask if one == mask else count[0] - one
    tell[0] = rest == 0
    if tell[0]:
        topics_remove(&it.topics, topic, size)
    else:
        count[0] = rest
    return MQ_OK


cdef int interest_change(Interest* it, const uint8_t* topic, size_t size, bint on,
                         bint* tell) noexcept nogil:
    tell[0] = True
    if on:
        return _more(it, topic, size, 1)
    return _less(it, topic, size, OWN, 1, tell)


cdef int interest_note(Interest* it, const uint8_t* topic, size_t size, bint on, bint last,
                       bint* tell) noexcept nogil:
    tell[0] = True
    if on:
        return _more(it, topic, size, <uint64_t> 1 << NOTE_SHIFT)
    return _less(it, topic, size, ~OWN, ~OWN if last else <uint64_t> 1 << NOTE_SHIFT, tell)


cdef int interest_set(Interest* it, const uint8_t* topic, size_t size, bint on) noexcept nogil:
    cdef bint tell = False
    cdef Msg m
    cdef int rc = interest_change(it, topic, size, on, &tell)
    if rc or not tell or it.peers.n == 0:
        return rc
    rc = msg_init_copy(&m, it.peers.at[0].host.pool, topic, size)
    if rc:
        return rc
    m.flags = MSG_SUBSCRIBE if on else MSG_CANCEL
    targets_send(&it.peers, &m, 1, True)
    msg_close(&m)
    return MQ_OK


cdef void interest_fini(Interest* it) noexcept nogil:
    topics_fini(&it.topics)
    targets_fini(&it.peers)
    free(it.path)
    it.path = NULL
