"""ZmqFace: the hot calls with pyzmq's signatures, for mqcore.zmq.

The four calls do the ordinary case here: an open socket, a whole message, bytes out and bytes in,
with or without waiting. Everything else (frames, trackers, messages in pieces, groups, sockets that
are not open yet) goes to the Python class that derives from this, by the same name with an
underscore in front. What the core raises is translated there, too (`_failed`).
"""

from cpython.buffer cimport PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t

from mqcore.base.message cimport (
    MSG_INLINE_MAX, Msg, MsgVec, msg_close, msg_data, msg_init_inline, msg_size,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_OK
from mqcore.sock.core cimport SocketCore, offer, unhindered
from mqcore.sock.message cimport foresee, joined, part_from, parts_list, skip_envelope
from mqcore.sock.sock cimport sock_recv, sock_send

from mqcore.errors import Error

cdef enum:
    DONTWAIT = 1


cdef class ZmqFace:
    """`_core`: the socket, once it is open. `_quick`: the ordinary case is possible. `_rest`: parts
    of a message that was received in part, the next one last."""
    cdef SocketCore core
    cdef public bint _quick
    cdef public list _rest
    cdef object __weakref__

    @property
    def _core(self):
        return self.core

    @_core.setter
    def _core(self, SocketCore core):
        self.core = core

    cdef int put_late(self, Msg* m, int rc, uint32_t seen, bint wait) except -1:
        """What an offer of one part that ended with `rc` leaves to do. The part is gone then."""
        cdef MsgVec v
        v.at = m
        v.n = 1
        try:
            self.put_late_parts(&v, rc, seen, wait)
        finally:
            if v.n:
                msg_close(m)
        return 0

    cdef int put_late_parts(self, MsgVec* v, int rc, uint32_t seen, bint wait) except -1:
        """The same of several; what is not sent stays in v."""
        if not wait and (rc == MQ_AGAIN or rc == MQ_FULL):
            raise self._again()
        try:
            self.core.push_late(v.at, v.n, rc, seen, ...)
        except Error as error:
            raise self._failed(error) from error
        v.n = 0
        return 0

    cdef int take_late(self, MsgVec* v, int rc, uint32_t seen, bint wait) except -1:
        """What a receive that ended with `rc` leaves to do."""
        if not wait and rc == MQ_AGAIN:
            raise self._again()
        try:
            self.core.pull_late(v, rc, seen, ...)
        except Error as error:
            raise self._failed(error) from error
        return 0

    cdef inline bint plain(self) noexcept:
        """A receive is but a look at the pipes."""
        cdef SocketCore core = self.core
        return unhindered(core) and not (core.answers or core.held.n or core._level is not None)

    cdef int take(self, MsgVec* v, bint wait) except -1:
        """Receive one message into v. 1: it would have to wait."""
        try:
            self.core.check()
            self.core.owe()
            if wait:
                self.core.pull(v, ...)
            elif self.core.pull_now(v, 1, INT64_MAX) != MQ_OK:
                return 1
        except Error as error:
            raise self._failed(error) from error
        self.core.owes = self.core.answers
        return 0

    def send(self, data, int flags=0, bint copy=True, bint track=False, routing_id=None,
             group=None):
        """Send one part, the whole message or with SNDMORE a piece of it. NOBLOCK: Again instead of
        waiting. Returns a MessageTracker with track."""
        cdef Msg m
        cdef bint pinned = False
        cdef uint32_t seen
        cdef int rc
        cdef SocketCore core = self.core
        if (not self._quick or flags & ~DONTWAIT or track or not PyBytes_CheckExact(data)
                or group is not None or routing_id is not None or not unhindered(core)):
            return self._send(data, flags, copy, track, routing_id, group)
        if PyBytes_GET_SIZE(data) <= MSG_INLINE_MAX:
            msg_init_inline(&m, <const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            seen = core.s.change.load()
            rc = sock_send(core.s, &m, 1)     # what offer() would look at has been looked at
            if rc == MQ_OK:
                core.owes = False
                return
        else:
            part_from(&m, core.plane.plane.pool, &core.arena, data, &pinned)
            seen = core.s.change.load()
            rc = offer(core, &m, 1, 0)
        if rc != MQ_OK:
            self.put_late(&m, rc, seen, not flags)
        if pinned and core.plane.on_pins is not None:
            core.plane.on_pins()

    def send_multipart(self, msg_parts, int flags=0, bint copy=True, bint track=False,
                       routing_id=None, group=None):
        """Send a message of several parts."""
        cdef MsgVec* v
        cdef uint32_t seen
        cdef int rc
        cdef SocketCore core = self.core
        if (not self._quick or flags & ~DONTWAIT or track or not copy
                or type(msg_parts) is not list or group is not None or routing_id is not None
                or not unhindered(core)):
            return self._send_multipart(msg_parts, flags, copy, track, routing_id, group)
        try:
            v = core._parts(msg_parts)
        except TypeError:  # a part that is no buffer, or no part: what is wrong is said there
            return self._send_multipart(msg_parts, flags, copy, track, routing_id, group)
        seen = core.s.change.load()
        rc = offer(core, v.at, v.n, 0)
        if rc == MQ_OK:
            v.n = 0
            core.give_vec(v)
            return
        try:
            self.put_late_parts(v, rc, seen, not flags)
        finally:
            core.give_vec(v)

    def recv(self, int flags=0, bint copy=True, bint track=False):
        """The next part: bytes, or a Frame without copy. NOBLOCK: Again instead of waiting."""
        cdef MsgVec* v
        cdef SocketCore core = self.core
        if not self._quick or flags & ~DONTWAIT or not copy or self._rest is not None:
            return self._recv(flags, copy, track)
        v = core.take_vec()
        try:
            self.fetch(v, not flags)
            return self.first_of(v)
        finally:
            core.give_vec(v)

    cdef inline int fetch(self, MsgVec* v, bint wait) except -1:
        """A message into v, or Again. Where plain() holds, without take()'s questions."""
        cdef uint32_t seen
        cdef int rc
        if self.plain():
            seen = self.core.s.change.load()
            rc = sock_recv(self.core.s, v)
            if rc != MQ_OK:
                self.take_late(v, rc, seen, wait)
        elif self.take(v, wait):
            raise self._again()
        return 0

    cdef bytes first_of(self, MsgVec* v):
        """The first part; the others are what comes next."""
        cdef SocketCore core = self.core
        cdef size_t first = skip_envelope(v, 0)
        cdef size_t size = msg_size(&v.at[first])
        if v.n - first > 1:
            self._rest = parts_list(v, first + 1, v.n)[::-1]
        elif size >= core.s.port.landing.least.load() or core.s.port.landing.size.load():
            foresee(&core.s.port.landing, core.plane.plane.pool, size)
        else:
            return PyBytes_FromStringAndSize(<char*> msg_data(&v.at[first]), size)
        return joined(v, first, first + 1)

    def recv_multipart(self, int flags=0, bint copy=True, bint track=False):
        """A whole message (what is left of one that was received in part): a list of its parts."""
        cdef MsgVec* v
        cdef SocketCore core = self.core
        if not self._quick or flags & ~DONTWAIT or not copy or self._rest is not None:
            return self._recv_multipart(flags, copy, track)
        v = core.take_vec()
        try:
            self.fetch(v, not flags)
            return parts_list(v, skip_envelope(v, 0), v.n)
        finally:
            core.give_vec(v)


cdef class BufferOf:
    """Has the buffer of its `_data`: the base of mqcore.zmq.Frame, since a class in Python has
    none."""
    cdef public object _data

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyObject_GetBuffer(self._data, view, flags)
