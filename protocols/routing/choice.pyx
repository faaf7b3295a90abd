"""The choice among live peers: see choice.pxd."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc

from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_INVALID, MQ_NOMEM, MQ_OK
from mqcore.spi.pattern cimport EV_FAILED
from mqcore.spi.pipe cimport parts_size, pipe_has_room, pipe_put
from mqcore.spi.strategy cimport CHOSE_TOLD

cdef const char* NONSENSE = b"the strategy chose a peer that is not there"


cdef void _swap(Choice* c, uint32_t i, uint32_t j) noexcept nogil:
    cdef Pipe* p = c.at[i]
    c.at[i] = c.at[j]
    c.at[j] = p
    c.at[i].out_at = <int> i
    c.at[j].out_at = <int> j


cdef void _raise(Choice* c, Pipe* p, bint silent) noexcept nogil:
    """From the full ones."""
    _swap(c, <uint32_t> p.out_at, c.open)
    c.open += 1
    if not silent:
        _swap(c, <uint32_t> p.out_at, c.heard)
        c.heard += 1


cdef void _lower(Choice* c, Pipe* p) noexcept nogil:
    """To the full ones, from wherever it is."""
    if <uint32_t> p.out_at < c.heard:
        c.heard -= 1
        _swap(c, <uint32_t> p.out_at, c.heard)
    if <uint32_t> p.out_at < c.open:
        c.open -= 1
        _swap(c, <uint32_t> p.out_at, c.open)


cdef int choice_join(Choice* c, Pipe* p) noexcept nogil:
    cdef Pipe** more
    if c.n == c.cap:
        more = <Pipe**> realloc(c.at, (2 * c.cap + 4) * sizeof(Pipe*))
        if more == NULL:
            return MQ_NOMEM
        c.at = more
        c.cap = 2 * c.cap + 4
    c.at[c.n] = p
    c.n += 1
    if c.strategy != NULL:
        p.out_at = <int> c.n - 1
        _raise(c, p, False)
    return MQ_OK


cdef void choice_leave(Choice* c, Pipe* p) noexcept nogil:
    cdef uint32_t i
    if c.strategy != NULL:
        _lower(c, p)
        _swap(c, <uint32_t> p.out_at, c.n - 1)
        c.n -= 1
        p.out_at = -1
        return
    for i in range(c.n):
        if c.at[i] == p:
            c.n -= 1
            c.at[i] = c.at[c.n]
            return


cdef void _forget(Strategy* strategy) noexcept nogil:
    if strategy.ops.fini != NULL:
        strategy.ops.fini(strategy)
    free(strategy)


cdef int choice_begin(Choice* c, Host* host, const StrategyOps* ops) noexcept nogil:
    cdef Strategy* made = <Strategy*> calloc(1, ops.size)
    cdef uint32_t i
    cdef int rc
    if made == NULL:
        return MQ_NOMEM
    made.ops = ops
    made.host = host
    if ops.init != NULL:
        rc = ops.init(made)
        if rc:
            free(made)
            return rc
    if c.strategy != NULL:
        _forget(c.strategy)
    else:
        for i in range(c.n):
            c.at[i].out_at = <int> i
        c.heard = c.n
        c.open = c.n
    c.strategy = made
    c.failing = False
    return MQ_OK


cdef void choice_end(Choice* c) noexcept nogil:
    cdef uint32_t i
    if c.strategy == NULL:
        return
    _forget(c.strategy)
    c.strategy = NULL
    for i in range(c.n):
        c.at[i].out_at = -1


cdef void choice_fini(Choice* c) noexcept nogil:
    choice_end(c)
    free(c.at)
    c.at = NULL
    c.n = 0
    c.cap = 0


cdef void choice_writable(Choice* c, Pipe* p, bint silent) noexcept nogil:
    if <uint32_t> p.out_at >= c.open:
        _raise(c, p, silent)


cdef void choice_silence(Choice* c, Pipe* p, bint silent) noexcept nogil:
    if <uint32_t> p.out_at < c.open:
        _lower(c, p)
        _raise(c, p, silent)


cdef uint32_t _next(Choice* c, uint32_t n) noexcept nogil:
    c.turn = 0 if c.turn + 1 >= n else c.turn + 1
    return c.turn


cdef Pipe* _choose(Choice* c, int64_t size) noexcept nogil:
    """NULL: no peer may have space."""
    cdef uint32_t n = c.heard if c.heard else c.open    # only silent peers: open, from 0 on
    cdef Host* host = c.strategy.host
    cdef uint32_t i
    if n < 2:
        return c.at[0] if n else NULL
    i = c.strategy.ops.choose(c.strategy, c.at, n, size)
    if i < n:
        c.failing = False
        return c.at[i]
    if i != CHOSE_TOLD and not c.failing:
        c.failing = True
        host.emit(host, EV_FAILED, NULL, <const uint8_t*> NONSENSE, 43)
    return c.at[_next(c, n)]


cdef int choice_send(Choice* c, Msg* parts, size_t n, Pipe** taker) noexcept nogil:
    cdef int64_t size = parts_size(parts, n)
    cdef Pipe* p
    cdef int rc
    while True:
        p = _choose(c, size)
        if p == NULL:
            return MQ_FULL if c.n else MQ_AGAIN
        if n > 1 and p.out.conflate:
            return MQ_INVALID
        if not pipe_has_room(p, size):
            _lower(c, p)
            continue
        rc = pipe_put(p, parts, n, size)
        if rc == MQ_OK:
            taker[0] = p
        return rc


cdef bint choice_can_send(Choice* c) noexcept nogil:
    while c.open:
        if pipe_has_room(c.at[c.open - 1], 0):
            return True
        _lower(c, c.at[c.open - 1])
    return False
