"""A filter's session in Python: see filter_ops.pxd."""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini
from mqcore.base.includes cimport iovec
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.base.waits cimport busy_begin, busy_end
from mqcore.spi.filter_ops cimport (
    FILTER_ENDS, FILTER_GIL, FILTER_KEEP, FILTER_OPS_ABI, Filter, FilterOps,
)

from mqcore.base.described import described
from mqcore.spi.filter import BufferSession, Refused

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
        f"the filter failed: {described(error)}")
    cdef bytes raw = text.encode("utf-8", "replace")
    snprintf(f.head.reason_text, sizeof(f.head.reason_text), b"%s", <char*> raw)
    f.head.reason = f.head.reason_text
    return MQ_PROTOCOL


cdef int _outgoing(object session, Bytes* down) except -1:
    cdef bytes made = session.outgoing()
    return bytes_append(down, PyBytes_AS_STRING(made), PyBytes_GET_SIZE(made))


cdef int _py_receive(PyFilter* f, const uint8_t* data, size_t n, Bytes* down) noexcept with gil:
    cdef bytes plain
    busy_begin()          # a socket that a finalizer closes here may wait for this thread
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
    finally:
        busy_end()


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
    if made[0] > FILTER_KEEP:
        _py_spare(f)
    return MQ_DONE if f.ended else MQ_NEED_DATA


cdef int _py_decode_into(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                         size_t* made, Bytes* down) noexcept with gil:
    """The same for a BufferSession."""
    cdef PyFilter* f = <PyFilter*> self
    made[0] = 0
    busy_begin()
    try:
        session = <object> f.session
        source = PyMemoryView_FromMemory(<char*> data, n, PyBUF_READ) if n else NOTHING
        target = PyMemoryView_FromMemory(<char*> out, room, PyBUF_WRITE)
        made[0] = session.receive_into(source, target)
        target.release()      # a view kept by the session is invalid now
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
    finally:
        busy_end()


cdef int _join(PyFilter* f, const iovec* pieces, int n) noexcept nogil:
    """One piece of them all: a call of `send` costs more than a copy, and a record for the header
    of each message more than that."""
    cdef int i
    if f.joined.cap > FILTER_KEEP and f.joined.n <= FILTER_KEEP:
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
    busy_begin()
    try:
        session = <object> f.session
        if n:
            view = PyMemoryView_FromMemory(<char*> data, n, PyBUF_READ)
            session.send(view)
            view.release()    # a view kept by the session is invalid now
        return _outgoing(session, down)
    except MemoryError:
        return MQ_NOMEM
    except BaseException as error:
        return _failed(f, error)
    finally:
        busy_end()


cdef int _py_finish(Filter* self, Bytes* down) noexcept with gil:
    cdef PyFilter* f = <PyFilter*> self
    busy_begin()
    try:
        session = <object> f.session
        session.finish()
        return _outgoing(session, down)
    except BaseException as error:
        return _failed(f, error)
    finally:
        busy_end()


cdef void _py_fini(Filter* self) noexcept with gil:
    cdef PyFilter* f = <PyFilter*> self
    session = <object> f.session
    Py_DECREF(session)
    if f.plain != NULL:
        Py_DECREF(<object> f.plain)
    bytes_fini(&f.joined)
    free(f)
    busy_begin()
    try:
        session.close()
    except BaseException:
        pass                  # it must not raise, and no caller could get the exception
    finally:
        busy_end()


cdef FilterOps PY_FILTER
PY_FILTER.abi = FILTER_OPS_ABI
PY_FILTER.flags = FILTER_GIL
PY_FILTER.fini = _py_fini
PY_FILTER.decode = _py_decode
PY_FILTER.encode = _py_encode
PY_FILTER.finish = _py_finish
NOTHING = memoryview(b"")


cdef Filter* filter_of(object session) except NULL:
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
