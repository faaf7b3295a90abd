"""Filters one above the other: see filter_chain.pxd."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini, bytes_reserve
from mqcore.base.includes cimport iovec
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK
from mqcore.spi.filter_ops cimport FILTER_KEEP, FILTER_OPS_ABI, FilterOps, NativeFilter
from mqcore.spi.python.filter_ops cimport filter_of

from mqcore.errors import PluginError

cdef enum:
    DEPTH = 8                 # filters in one chain
    PIECE = 64 * 1024

cdef struct Chain:
    Filter head
    FilterOps own             # the flags of all its filters together
    int n
    Filter* filters[8]        # the outermost first
    Bytes raw                 # of the descriptor, for the innermost; not ours
    Bytes[8] plain            # a piece of what filter i made for the one above it
    bint[8] more              # filter i has more of what it was given
    bint[8] done              # filter i has ended, and all it made has been taken
    Bytes reply
    Bytes[2] spare


cdef int _blame(Chain* c, int i, int rc) noexcept nogil:
    c.head.reason = c.filters[i].reason
    return rc


cdef inline void _calm(Bytes* buffer) noexcept nogil:
    """Much memory, and little was in it the last time."""
    if buffer.cap > FILTER_KEEP and buffer.n <= FILTER_KEEP:
        bytes_fini(buffer)


cdef int _through(Chain* c, int first, const Bytes* data, Bytes* down) noexcept nogil:
    """Bytes from above filter `first`, encoded by it and all below it."""
    cdef iovec piece
    cdef Bytes* made
    cdef int i, rc
    piece.iov_base = data.at
    piece.iov_len = data.n
    for i in range(first, c.n):
        made = &c.spare[i % 2]
        _calm(made)
        made.n = 0
        rc = c.filters[i].ops.encode(c.filters[i], &piece, 1, made)
        if rc:
            return _blame(c, i, rc)
        piece.iov_base = made.at
        piece.iov_len = made.n
    return bytes_append(down, piece.iov_base, piece.iov_len)


cdef int _answer(Chain* c, int i, Bytes* down) noexcept nogil:
    """What filter i replied goes out through those below it."""
    cdef int rc = MQ_OK
    if c.reply.n:
        rc = _through(c, i + 1, &c.reply, down)
        c.reply.n = 0
    return rc


cdef int _input(Chain* c, int i, Bytes* data, Bytes* down) noexcept nogil:
    """What filter i is to decode next: the bytes of the descriptor, or what the filter below makes
    of them, a piece at a time. MQ_OK, or why there is nothing."""
    cdef size_t made = 0
    cdef int rc
    if i == c.n - 1:
        data[0] = c.raw
        c.raw.n = 0
        return MQ_OK if data.n else MQ_NEED_DATA
    if c.done[i + 1]:
        return MQ_DONE
    if bytes_reserve(&c.plain[i + 1], PIECE):
        return MQ_NOMEM
    rc = _draw(c, i + 1, c.plain[i + 1].at, PIECE, &made, down)
    c.done[i + 1] = rc == MQ_DONE
    data.at = c.plain[i + 1].at
    data.n = made
    return MQ_OK if made and (rc == MQ_OK or rc == MQ_DONE) else rc


cdef int _draw(Chain* c, int i, uint8_t* out, size_t room, size_t* made,
               Bytes* down) noexcept nogil:
    """What filter i makes next, at most `room` bytes of it. MQ_OK: there may be more."""
    cdef Filter* f = c.filters[i]
    cdef Bytes data
    cdef int rc, answered
    made[0] = 0
    while made[0] == 0:
        data.at = NULL
        data.n = 0
        rc = MQ_OK
        if not c.more[i]:
            rc = _input(c, i, &data, down)
        if rc == MQ_OK:
            rc = f.ops.decode(f, data.at, data.n, out, room, made, &c.reply)
            if rc != MQ_OK and rc != MQ_NEED_DATA and rc != MQ_DONE:
                _blame(c, i, rc)
            c.more[i] = rc == MQ_OK
            answered = _answer(c, i, down)
            if answered:
                return answered
            if rc == MQ_NEED_DATA:
                continue      # the filter below may have more
        if rc != MQ_OK:
            return rc
    return MQ_OK


cdef void _spare(Chain* c) noexcept nogil:
    """An idle chain keeps no buffers but small ones."""
    cdef int i
    for i in range(c.n):
        if c.plain[i].cap > FILTER_KEEP:
            bytes_fini(&c.plain[i])
    for i in range(2):
        if c.spare[i].cap > FILTER_KEEP:
            bytes_fini(&c.spare[i])
    if c.reply.cap > FILTER_KEEP:
        bytes_fini(&c.reply)


cdef int _chain_decode(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                       size_t* made, Bytes* down) noexcept nogil:
    cdef Chain* c = <Chain*> self
    cdef size_t more = 0
    cdef int rc = MQ_OK
    made[0] = 0
    if n:
        c.raw.at = <uint8_t*> data
        c.raw.n = n
    while rc == MQ_OK and made[0] < room:
        rc = _draw(c, 0, out + made[0], room - made[0], &more, down)
        made[0] += more
    if rc == MQ_NEED_DATA:
        _spare(c)
    return rc


cdef int _chain_encode(Filter* self, const iovec* pieces, int n, Bytes* down) noexcept nogil:
    cdef Chain* c = <Chain*> self
    cdef int rc
    _calm(&c.plain[0])
    c.plain[0].n = 0
    rc = c.filters[0].ops.encode(c.filters[0], pieces, n, &c.plain[0])
    if rc:
        return _blame(c, 0, rc)
    return _through(c, 1, &c.plain[0], down)


cdef int _chain_finish(Filter* self, Bytes* down) noexcept nogil:
    cdef Chain* c = <Chain*> self
    cdef int i, rc
    for i in range(c.n):
        if c.filters[i].ops.finish == NULL:
            continue
        rc = c.filters[i].ops.finish(c.filters[i], &c.reply)
        if rc:
            return _blame(c, i, rc)
        rc = _answer(c, i, down)
        if rc:
            return rc
    return MQ_OK


cdef void _chain_fini(Filter* self) noexcept nogil:
    cdef Chain* c = <Chain*> self
    cdef int i
    for i in range(c.n):
        c.filters[i].ops.fini(c.filters[i])
    for i in range(DEPTH):
        bytes_fini(&c.plain[i])
    bytes_fini(&c.reply)
    bytes_fini(&c.spare[0])
    bytes_fini(&c.spare[1])
    free(c)


cdef Filter* filter_chain(list sessions) except? NULL:
    cdef Chain* c
    cdef Filter* only
    cdef NativeFilter native
    if len(sessions) > DEPTH:
        raise PluginError(f"{len(sessions)} filters in one chain, at most {DEPTH} are possible",
                          hint="take some out of the URL")
    c = <Chain*> calloc(1, sizeof(Chain))
    if c == NULL:
        raise MemoryError()
    c.head.ops = &c.own
    c.own.abi = FILTER_OPS_ABI
    c.own.fini = _chain_fini
    c.own.decode = _chain_decode
    c.own.encode = _chain_encode
    c.own.finish = _chain_finish
    try:
        for session in sessions:
            if session.transparent:
                session.close()
                continue
            native = session.native()
            c.filters[c.n] = native.take() if native is not None else filter_of(session)
            c.own.flags |= c.filters[c.n].ops.flags
            c.n += 1
    except BaseException:
        _chain_fini(&c.head)
        raise
    if c.n > 1:
        return &c.head
    only = c.filters[0]
    c.n = 0
    _chain_fini(&c.head)
    return only
