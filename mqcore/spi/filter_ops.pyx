"""Filters in the data plane: see filter_ops.pxd.

Two filters are made here: one that runs a Python session, and one that is a chain of others.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini, bytes_reserve
from mqcore.base.includes cimport iovec
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL

from mqcore.errors import PluginError
from mqcore.spi.filter import BufferSession, Refused

cdef enum:
    DEPTH = 8                 # filters in one chain
    PIECE = 64 * 1024
    KEEP = 16 * 1024          # an idle connection keeps no more memory than this


cdef class NativeFilter:
    def __init__(self):
        raise TypeError("a NativeFilter is made by native_filter(), see mqcore/spi/filter_ops.pxd")

    def __dealloc__(self):
        if self.filter != NULL:
            self.filter.ops.fini(self.filter)

    cdef Filter* take(self) noexcept:
        cdef Filter* filter = self.filter
        self.filter = NULL
        return filter


cdef NativeFilter native_filter(Filter* filter):
    cdef const FilterOps* ops = filter.ops
    cdef NativeFilter carrier
    if ops == NULL or ops.abi != FILTER_OPS_ABI:
        raise PluginError(
            f"a filter was made for ABI {ops.abi if ops != NULL else 'unknown'}, this mqcore has "
            f"{FILTER_OPS_ABI}", hint="rebuild the filter's distribution")
    if ops.fini == NULL or ops.decode == NULL or ops.encode == NULL:
        raise PluginError("a filter lacks fini, decode or encode",
                          hint="see mqcore/spi/filter_ops.pxd")
    carrier = NativeFilter.__new__(NativeFilter)
    carrier.filter = filter
    return carrier


# -- a Python session ------------------------------------------------------------------------------

cdef struct PyFilter:
    Filter head
    FilterOps own
    PyObject* session
    PyObject* plain           # bytes that `receive` made, given out piece by piece
    const uint8_t* at         # of them, what is left
    size_t left
    bint ended
    Bytes joined              # pieces on their way to `send`


cdef int _failed(PyFilter* f, object error) except -1:
    """Why the stream cannot go on, as a reason."""
    text = str(error) if isinstance(error, Refused) else (
        f"the filter failed: {type(error).__name__}: {error}")
    cdef bytes raw = text.encode("utf-8", "replace")
    snprintf(f.head.reason_text, sizeof(f.head.reason_text), b"%s", <char*> raw)
    f.head.reason = f.head.reason_text
    return MQ_PROTOCOL


cdef int _outgoing(object session, Bytes* down) except -1:
    cdef bytes made = session.outgoing()
    return bytes_append(down, PyBytes_AS_STRING(made), PyBytes_GET_SIZE(made))


cdef int _py_receive(PyFilter* f, const uint8_t* data, size_t n, Bytes* down) noexcept with gil:
    cdef bytes plain
    try:
        session = <object> f.session
        plain = session.receive(PyBytes_FromStringAndSize(<const char*> data, n))
        if f.plain != NULL:
            Py_DECREF(<object> f.plain)
        Py_INCREF(plain)
        f.plain = <PyObject*> plain
        f.at = <const uint8_t*> PyBytes_AS_STRING(plain)
        f.left = PyBytes_GET_SIZE(plain)
        f.ended = session.ended
        return _outgoing(session, down)
    except MemoryError:
        return MQ_NOMEM
    except BaseException as error:
        return _failed(f, error)


cdef void _py_spare(PyFilter* f) noexcept with gil:
    """An idle connection does not keep what it has given out."""
    cdef PyObject* plain = f.plain
    f.plain = NULL
    if plain != NULL:
        Py_DECREF(<object> plain)


cdef int _py_decode(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                    size_t* made, Bytes* down) noexcept nogil:
    cdef PyFilter* f = <PyFilter*> self
    cdef int rc
    made[0] = 0
    if n:
        rc = _py_receive(f, data, n, down)
        if rc:
            return rc
    made[0] = min(f.left, room)
    memcpy(out, f.at, made[0])
    f.at += made[0]
    f.left -= made[0]
    if f.left:
        return MQ_OK
    if made[0] > KEEP:
        _py_spare(f)
    return MQ_DONE if f.ended else MQ_NEED_DATA


cdef int _py_decode_into(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                         size_t* made, Bytes* down) noexcept with gil:
    """The same for a BufferSession."""
    cdef PyFilter* f = <PyFilter*> self
    made[0] = 0
    try:
        session = <object> f.session
        source = PyMemoryView_FromMemory(<char*> data, n, PyBUF_READ) if n else NOTHING
        target = PyMemoryView_FromMemory(<char*> out, room, PyBUF_WRITE)
        made[0] = session.receive_into(source, target)
        target.release()      # whoever kept one has a dead one
        if n:
            source.release()
        if made[0] > room:
            made[0] = 0
            raise ValueError("receive_into made more than there is room for")
        if _outgoing(session, down):
            return MQ_NOMEM
        if made[0] == room or session.broken is not None:
            return MQ_OK      # the next call has more, or raises
        return MQ_DONE if session.ended else MQ_NEED_DATA
    except MemoryError:
        return MQ_NOMEM
    except BaseException as error:
        return _failed(f, error)


cdef int _join(PyFilter* f, const iovec* pieces, int n) noexcept nogil:
    """One piece of them all: a call of `send` costs more than a copy, and a record for the header
    of each message more than that."""
    cdef int i
    if f.joined.cap > KEEP and f.joined.n <= KEEP:
        bytes_fini(&f.joined)
    f.joined.n = 0
    for i in range(n):
        if bytes_append(&f.joined, pieces[i].iov_base, pieces[i].iov_len):
            return MQ_NOMEM
    return MQ_OK


cdef int _py_encode(Filter* self, const iovec* pieces, int n, Bytes* down) noexcept nogil:
    cdef PyFilter* f = <PyFilter*> self
    if n == 1:
        return _py_send(f, pieces[0].iov_base, pieces[0].iov_len, down)
    if _join(f, pieces, n):
        return MQ_NOMEM
    return _py_send(f, f.joined.at, f.joined.n, down)


cdef int _py_send(PyFilter* f, void* data, size_t n, Bytes* down) noexcept with gil:
    try:
        session = <object> f.session
        if n:
            view = PyMemoryView_FromMemory(<char*> data, n, PyBUF_READ)
            session.send(view)
            view.release()    # whoever kept it has a dead one
        return _outgoing(session, down)
    except MemoryError:
        return MQ_NOMEM
    except BaseException as error:
        return _failed(f, error)


cdef int _py_finish(Filter* self, Bytes* down) noexcept with gil:
    cdef PyFilter* f = <PyFilter*> self
    try:
        session = <object> f.session
        session.finish()
        return _outgoing(session, down)
    except BaseException as error:
        return _failed(f, error)


cdef void _py_fini(Filter* self) noexcept with gil:
    cdef PyFilter* f = <PyFilter*> self
    session = <object> f.session
    Py_DECREF(session)
    if f.plain != NULL:
        Py_DECREF(<object> f.plain)
    bytes_fini(&f.joined)
    free(f)
    try:
        session.close()
    except BaseException:
        pass                  # it may not raise, and nobody is left to hear of it


cdef FilterOps PY_FILTER
PY_FILTER.abi = FILTER_OPS_ABI
PY_FILTER.flags = FILTER_GIL
PY_FILTER.fini = _py_fini
PY_FILTER.decode = _py_decode
PY_FILTER.encode = _py_encode
PY_FILTER.finish = _py_finish
NOTHING = memoryview(b"")


cdef Filter* _py_filter(object session) except NULL:
    cdef PyFilter* f = <PyFilter*> calloc(1, sizeof(PyFilter))
    if f == NULL:
        raise MemoryError()
    f.head.ops = &f.own
    f.own = PY_FILTER
    if isinstance(session, BufferSession):
        f.own.decode = _py_decode_into
    if session.ends:
        f.own.flags |= FILTER_ENDS
    Py_INCREF(session)
    f.session = <PyObject*> session
    return &f.head


# -- a chain ---------------------------------------------------------------------------------------

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
    if buffer.cap > KEEP and buffer.n <= KEEP:
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
        if c.plain[i].cap > KEEP:
            bytes_fini(&c.plain[i])
    for i in range(2):
        if c.spare[i].cap > KEEP:
            bytes_fini(&c.spare[i])
    if c.reply.cap > KEEP:
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
    """NULL without an exception: no filter is left, bytes pass as they are."""
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
            c.filters[c.n] = native.take() if native is not None else _py_filter(session)
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
