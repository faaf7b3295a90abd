"""From handles to Python objects and back, and the Message that recv_msg() gives."""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.memoryview cimport PyMemoryView_Check
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.string cimport memcpy
from libcpp.atomic cimport memory_order_acquire, memory_order_release

from mqcore.base.arena cimport arena_cut
from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_INLINE_MAX, MSG_MORE, MSG_REF, MSG_ROUTING_ID, msg_close,
    msg_copy, msg_data, msg_init, msg_init_copy, msg_init_inline, msg_init_ref, msg_size, vec_fini,
    vec_push,
)
from mqcore.base.slab cimport (
    LAND_FROM, LANDINGS, OWNER_PYOBJ, Owner, landing_clear, owner_release, pyobj_new, pyobj_room,
)
from mqcore.base.status cimport MQ_OK
from mqcore.binding.spent cimport body_given, body_new

from mqcore.errors import UsageError

cdef enum:
    BY_REFERENCE = 4096           # `bytes` from this size on are sent without a copy
    FORESEE_BYTES = 4 << 20       # limit of memory prepared, except for two bodies of up to
    FORESEE_TWO = 16 << 20        # (one for the next while the last is on its way), or one of up to
    FORESEE_MOST = 64 << 20
    FORESEE_LARGE = 4             # of LAND_FROM and more; and as many of any size in one call
    FORESEE_SMALL = 512 * 1024    # memory for smaller ones: what stays in a core's cache
    VIEW_FROM = 4096              # received parts from this size on are views of their slab


cdef int part_copy(Msg* m, Pool* pool, atomic[Owner*]* arena, const uint8_t* data,
                   size_t size) noexcept nogil:
    cdef Owner* slab
    cdef int rc
    if size <= MSG_INLINE_MAX:
        msg_init_inline(m, data, size)
        return MQ_OK
    if size >= BY_REFERENCE:
        return msg_init_copy(m, pool, data, size)
    # SYNC: acquire: what its last holder wrote into it
    slab = arena.exchange(<Owner*> ARENA_TAKEN, memory_order_acquire)
    if slab == <Owner*> ARENA_TAKEN:
        return msg_init_copy(m, pool, data, size)
    rc = arena_cut(&slab, pool, 1, size, m)
    if rc == MQ_OK:
        memcpy(m.u.ref.data, data, size)
    arena.store(slab, memory_order_release)     # SYNC: hands it to the next one
    return rc


cdef Body received_body(data):
    """What a received part's view is of; None: it is something else."""
    cdef object base
    if not PyMemoryView_Check(data):
        return None
    base = data.obj
    return <Body> base if isinstance(base, Body) else None


cdef int part_from(Msg* m, Pool* pool, atomic[Owner*]* arena, object data, bint* pinned) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t size
    cdef Owner* owner
    cdef Body body
    cdef int rc
    if PyBytes_CheckExact(data):
        size = PyBytes_GET_SIZE(data)
        if size >= BY_REFERENCE:
            Py_INCREF(data)
            owner = pyobj_new(pool, <void*> data)
            if owner == NULL:
                Py_DECREF(data)
                raise MemoryError()
            msg_init_ref(m, owner, <uint8_t*> PyBytes_AS_STRING(data), size)
            pinned[0] = True
        elif part_copy(m, pool, arena, <uint8_t*> PyBytes_AS_STRING(data), size):
            raise MemoryError()
        return 0
    if isinstance(data, str):
        raise UsageError("a message is bytes, not str", hint="send text.encode()")
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    except (TypeError, BufferError) as error:
        if isinstance(data, (list, tuple)):
            raise UsageError(f"a part of a message is bytes, not {type(data).__name__}",
                             hint="send_parts([...]) sends a message of several parts") from None
        raise UsageError(f"cannot send {type(data).__name__}: {error}",
                         hint="send bytes or another C-contiguous buffer") from None
    body = received_body(data) if view.len >= BY_REFERENCE else None
    if body is not None:      # what was received goes on as it is
        msg_copy(m, &body.m)
        m.flags = 0
        m.u.ref.data = <uint8_t*> view.buf
        m.u.ref.size = view.len
        rc = MQ_OK
    else:
        rc = part_copy(m, pool, arena, <uint8_t*> view.buf, view.len)
    PyBuffer_Release(&view)
    if rc:
        raise MemoryError()
    return 0


cdef size_t message_end(MsgVec* v, size_t start) noexcept nogil:
    while v.at[start].flags & MSG_MORE:
        start += 1
    return start + 1


cdef size_t skip_envelope(MsgVec* v, size_t start) noexcept nogil:
    while v.at[start].flags & MSG_ENVELOPE:
        start += 1
    return start


cdef bytes part_bytes(Msg* m):
    """The body: the very object that it lies in, if it fills that, or a copy."""
    cdef char* data = <char*> msg_data(m)
    cdef size_t size = msg_size(m)
    cdef object whole
    if m.kind == MSG_REF and m.u.ref.owner.kind == OWNER_PYOBJ:
        whole = <object> m.u.ref.owner.obj
        if (PyBytes_CheckExact(whole) and PyBytes_AS_STRING(whole) == data
                and PyBytes_GET_SIZE(whole) == <Py_ssize_t> size):
            body_given(whole)
            return whole
    if size < LAND_FROM:
        return PyBytes_FromStringAndSize(data, size)
    whole = body_new(size)
    memcpy(PyBytes_AS_STRING(whole), data, size)
    body_given(whole)
    return whole


cdef int foresee(Landing* landing, Pool* pool, size_t size) except -1:
    cdef Owner* owner
    cdef bytes body
    cdef size_t i, n
    cdef size_t made = 0
    if landing.size.load() != size:
        landing_clear(landing)
        landing.size.store(size if landing.least.load() <= size <= FORESEE_MOST else 0)
        return 0
    if size >= LAND_FROM:
        n = min(max(FORESEE_BYTES // size, 2 if size <= FORESEE_TWO else 1), FORESEE_LARGE)
    else:
        n = min(FORESEE_SMALL // size, LANDINGS)
    for i in range(n):
        if landing.slots[i].load() != NULL:
            continue
        if made == FORESEE_LARGE:
            return 0
        made += 1
        try:
            body = body_new(size)
        except MemoryError:
            return 0              # then the next one is copied
        owner = pyobj_room(pool, <void*> body, <uint8_t*> PyBytes_AS_STRING(body), size)
        if owner == NULL:
            return 0
        Py_INCREF(body)
        owner = landing.slots[i].exchange(owner)
        if owner != NULL:
            owner_release(owner)  # another thread was here
    return 0


cdef bytes joined(MsgVec* v, size_t start, size_t end):
    cdef size_t i
    cdef Py_ssize_t size = 0
    cdef bytes out
    cdef char* at
    if end - start == 1:
        return part_bytes(&v.at[start])
    for i in range(start, end):
        size += msg_size(&v.at[i])
    out = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(out)
    for i in range(start, end):
        memcpy(at, msg_data(&v.at[i]), msg_size(&v.at[i]))
        at += msg_size(&v.at[i])
    return out


cdef list bodies(MsgVec* v):
    """One bytes a message."""
    cdef list out = []
    cdef size_t at = 0
    cdef size_t end
    while at < v.n:
        end = message_end(v, at)
        out.append(joined(v, skip_envelope(v, at), end))
        at = end
    return out


cdef list parts_list(MsgVec* v, size_t start, size_t end):
    cdef list out = []
    cdef size_t i
    for i in range(start, end):
        out.append(part_bytes(&v.at[i]))
    return out


cdef class Body:
    """Keeps a received body alive for the views of it."""

    def __cinit__(self):
        msg_init(&self.m)

    def __dealloc__(self):
        msg_close(&self.m)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, msg_data(&self.m), msg_size(&self.m), 1, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass


cdef object part_view(Msg* m):
    cdef Body body
    if msg_size(m) < VIEW_FROM:
        return PyBytes_FromStringAndSize(<char*> msg_data(m), msg_size(m))
    body = Body.__new__(Body)
    msg_copy(&body.m, m)
    return memoryview(body)


cdef class Message:
    """One received message: parts, where it came from, and how to answer it. Read-only."""

    def __init__(self):
        raise UsageError("a Message comes from recv_msg()", hint="send bytes, not a Message")

    def __dealloc__(self):
        vec_fini(&self.envelope)

    @property
    def body(self):
        """The last part, as bytes."""
        return bytes(self.parts[len(self.parts) - 1])

    @property
    def topic(self):
        """The first part if there are several, else None."""
        return bytes(self.parts[0]) if len(self.parts) > 1 else None

    @property
    def peer(self):
        """The Peer it came from; valid after the link is gone."""
        with cython.critical_section(self):
            peer = self._peer
        if peer is None:
            peer = self.core._peer(self.peer_id)
            with cython.critical_section(self):
                if self._peer is None:
                    self._peer = peer
                peer = self._peer
        return peer

    @property
    def replied(self):
        """reply() has answered it."""
        return self.answered.load() != 0

    @property
    def group(self):
        """Dish: the group it came for, as text (bytes that are no UTF-8 as surrogates); else
        None."""
        cdef Msg* m
        if self.envelope.n == 0 or not self.envelope.at[0].flags & MSG_GROUP:
            return None
        m = self.envelope.at
        return PyBytes_FromStringAndSize(
            <char*> msg_data(m), msg_size(m)).decode("utf-8", "surrogateescape")

    def __bytes__(self):
        return b"".join(self.parts)

    def __len__(self):
        return sum(len(part) for part in self.parts)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if len(self.parts) != 1:
            raise BufferError("several parts have no one buffer; use .parts or bytes(m)")
        PyObject_GetBuffer(self.parts[0], view, flags)

    def __repr__(self):
        sizes = ", ".join(str(len(part)) for part in self.parts)
        return f"<Message of {len(self.parts)} part(s) ({sizes} B) from peer {self.peer_id}>"

    def reply(self, *parts, timeout=...):
        """Answer it, from any thread, once, with parts or a list of them. StateError if it was
        answered or its pattern has no answers; NoSuchPeer if the peer has left."""
        if not parts:
            raise UsageError("reply() needs at least one part",
                             hint="reply(b'') is an empty answer")
        self.core._reply(self, parts, timeout)

    async def areply(self, *parts, timeout=...):
        """reply(), awaitable."""
        if not parts:
            raise UsageError("areply() needs at least one part",
                             hint="areply(b'') is an empty answer")
        await self.core._areply(self, parts, timeout)


cdef Message message_new(object core, MsgVec* v, size_t start, size_t end, double now):
    cdef Message message = Message.__new__(Message)
    cdef list parts = []
    cdef size_t i
    cdef Msg m
    message.core = core
    message.received_at = now
    message.peer_id = v.at[start].peer
    for i in range(start, end):
        if v.at[i].flags & MSG_ENVELOPE:
            msg_copy(&m, &v.at[i])
            if vec_push(&message.envelope, &m):
                msg_close(&m)
                raise MemoryError()
        elif v.at[i].flags & MSG_ROUTING_ID:
            message.routing_id = PyBytes_FromStringAndSize(
                <char*> msg_data(&v.at[i]), msg_size(&v.at[i]))
        else:
            parts.append(part_view(&v.at[i]))
    message.parts = tuple(parts)
    return message
