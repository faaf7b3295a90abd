"""Part: one part of a message as an object, the C half of mqcore.zmq.Frame. It has the buffer of
its `_data`, since a class in Python has none."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject

from mqcore.base.message cimport MSG_GROUP, MSG_MORE, msg_data, msg_size
from mqcore.sock.message cimport part_view

cdef tuple NOTHING = ()
COPY_THRESHOLD = 65536  # bytes; below, copying costs less than keeping


cdef class Part:
    _finished = None              # the tracker of what nobody holds

    def __cinit__(self):
        self._group = ""

    def __init__(self, data=None, bint track=False, copy=None, copy_threshold=None):
        if PyBytes_CheckExact(data):
            self._data = data
        elif data is None:
            self._data = b""
        elif isinstance(data, str):
            raise TypeError("Str objects not allowed. Only: bytes, buffer interfaces.")
        else:
            view = memoryview(data)
            if not view.c_contiguous:
                raise BufferError("memoryview: underlying buffer is not contiguous")
            if copy is None:
                copy = view.nbytes < (COPY_THRESHOLD if copy_threshold is None else copy_threshold)
            self._data = bytes(view) if copy else view
        if track:
            self.tracker = self._finished

    cdef object whole(self):
        """`_data`, which `bytes` may be replacing in another thread."""
        cdef object data
        with cython.critical_section(self):
            data = self._data
        return data

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyObject_GetBuffer(self.whole(), view, flags)

    @property
    def bytes(self):
        """The part's content."""
        cdef object data
        data = self.whole()
        if PyBytes_CheckExact(data):
            return data
        data = bytes(data)
        with cython.critical_section(self):
            if not PyBytes_CheckExact(self._data):
                self._data = data
            data = self._data
        return data

    @property
    def buffer(self):
        """A view of it, always the same."""
        cdef object view
        with cython.critical_section(self):
            view = self._view
        if view is None:
            view = memoryview(self.whole())
            with cython.critical_section(self):
                if self._view is None:
                    self._view = view
                view = self._view
        return view

    @property
    def _peer(self):
        """mqcore's Peer that it came from; None if it was not received."""
        return None if self.core is None else self.core._peer(self._peer_id)

    def __bytes__(self):
        return self.bytes

    def __len__(self):
        cdef Py_buffer view
        cdef object data = self.whole()
        if PyBytes_CheckExact(data):
            return PyBytes_GET_SIZE(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return view.len
        finally:
            PyBuffer_Release(&view)

    def __copy__(self):
        cdef Part made = part_of(type(self), self.whole(), self.more, self.tracker)
        made._group, made._routing_id = self._group, self._routing_id
        made.core, made._peer_id = self.core, self._peer_id
        return made


cdef Part part_of(type kind, object data, bint more, object tracker):
    cdef Part made = <Part> (<PyTypeObject*> kind).tp_new(kind, <PyObject*> NOTHING, NULL)
    made._data = data
    made.more = more
    made.tracker = tracker
    return made


cdef list parts_as(type kind, SocketCore core, MsgVec* v, size_t first, object tracker):
    cdef list out = []
    cdef Part made
    cdef size_t i
    cdef str group = ""
    if v.at[0].flags & MSG_GROUP:
        group = (<char*> msg_data(v.at))[:msg_size(v.at)].decode("utf-8", "surrogateescape")
    for i in range(first, v.n):
        made = part_of(kind, part_view(&v.at[i]), v.at[i].flags & MSG_MORE != 0, tracker)
        made._group = group
        made.core = core
        made._peer_id = v.at[0].peer
        out.append(made)
    return out
