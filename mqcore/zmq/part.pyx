"""Part: one part of a message as an object, the C half of mqcore.zmq.Frame. It has the buffer of
its data, since a class in Python has none.

Threads may share a part. Its data changes once, from a view of received memory to a copy as bytes,
and is read and replaced inside a critical section only.
"""

from weakref import ref

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject

from mqcore.base.message cimport MSG_GROUP, MSG_MORE, msg_data, msg_size
from mqcore.binding.message cimport part_view

cdef tuple NOTHING = ()
COPY_THRESHOLD = 65536  # bytes; below, copying costs less than keeping


cdef class Part:
    _finished = None              # the tracker of unused memory

    def __cinit__(self):
        self._group = ""

    def __init__(self, data=None, bint track=False, copy=None, copy_threshold=None):
        if self.data is not None:     # views of it may be in use
            raise RuntimeError("a Frame is made once; make another one")
        if PyBytes_CheckExact(data):
            self.data = data
            size = PyBytes_GET_SIZE(data)
        elif data is None:
            self.data = b""
            size = 0
        elif isinstance(data, str):
            raise TypeError("Str objects not allowed. Only: bytes, buffer interfaces.")
        else:
            self.data = memoryview(data)
            if not self.data.c_contiguous:
                raise BufferError("memoryview: underlying buffer is not contiguous")
            size = self.data.nbytes
        if copy is None:
            copy = size < (COPY_THRESHOLD if copy_threshold is None else copy_threshold)
        if not copy and data is not None:
            self.held, self.tracker = self._hold(data, track)
            return
        if not PyBytes_CheckExact(self.data):
            self.data = bytes(self.data)
        if track:
            self.tracker = self._finished

    @staticmethod
    def _hold(data, track):
        """What is to live as long as the part or something that was sent of it needs `data`, and
        the tracker that knows when that is over."""
        return None, None

    cdef object content(self):
        with cython.critical_section(self):
            return self.data

    @property
    def _data(self):
        return self.content()

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef object data = self.content()
        cdef Py_buffer* inner
        view.internal = NULL
        if PyBytes_CheckExact(data):  # stays as it is from now on
            PyBuffer_FillInfo(view, self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), True,
                              flags)
            return
        if self.held is None:     # the buffer of the data; nothing depends on this object
            PyObject_GetBuffer(data, view, flags)
            return
        inner = <Py_buffer*> PyMem_Malloc(sizeof(Py_buffer))
        if inner == NULL:
            raise MemoryError()
        try:
            PyObject_GetBuffer(data, inner, flags)
        except BaseException:
            PyMem_Free(inner)
            raise
        view[0] = inner[0]
        view.obj = self
        view.internal = inner

    def __releasebuffer__(self, Py_buffer* view):
        if view.internal != NULL:
            PyBuffer_Release(<Py_buffer*> view.internal)
            PyMem_Free(view.internal)

    @property
    def bytes(self):
        """The part's content."""
        cdef object made = self.content()
        if PyBytes_CheckExact(made):
            return made
        made = bytes(made)
        with cython.critical_section(self):
            if self.held is not None:     # its memory is the program's, and may be written to
                if self.copied is None:
                    self.copied = made
                made = self.copied
            elif PyBytes_CheckExact(self.data):
                made = self.data
            else:
                self.data = made
        return made

    @property
    def buffer(self):
        """A view of it, shared by all callers while it is in use."""
        cdef object view
        cdef bint received
        with cython.critical_section(self):
            view = None if self.viewed is None else self.viewed()
            if view is None:
                # a view of received memory itself goes on without a copy
                received = self.held is None and not PyBytes_CheckExact(self.data)
                view = memoryview(self.data if received else self)
                self.viewed = ref(view)
            return view

    @property
    def _peer(self):
        """mqcore's Peer that it came from; None if it was not received."""
        return None if self.core is None else self.core._peer(self._peer_id)

    def __bytes__(self):
        return self.bytes

    def __len__(self):
        cdef Py_buffer view
        cdef object data = self.content()
        if PyBytes_CheckExact(data):
            return PyBytes_GET_SIZE(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return view.len
        finally:
            PyBuffer_Release(&view)

    def __copy__(self):
        cdef Part made = part_of(type(self), self.content(), self.more, self.tracker)
        made._group, made._routing_id = self._group, self._routing_id
        made.core, made._peer_id, made.held = self.core, self._peer_id, self.held
        return made


cdef Part part_of(type kind, object data, bint more, object tracker):
    cdef Part made = <Part> (<PyTypeObject*> kind).tp_new(kind, <PyObject*> NOTHING, NULL)
    made.data = data
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
