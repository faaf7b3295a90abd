"""ZmqFace: the hot calls with pyzmq's signatures, for mqcore.zmq.

The four calls do the ordinary cases here: an open socket, bytes or other buffers or frames, whole
messages and pieces of them, with or without waiting. Everything else (trackers, groups, sockets
that are not open yet or whose descriptor is watched) goes to the derived Python class, by the same
name with an underscore in front. What the core raises is translated there, too (`_failed`).

A socket may be used by several threads. What a message in pieces leaves behind between two calls,
`_begun` and `_rest`, is taken and replaced inside a critical section only; the ordinary calls just
compare the pointers with None.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromObject, PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp.atomic cimport atomic

from mqcore.base.message cimport (
    MSG_INLINE_MAX, Msg, MsgVec, msg_close, msg_data, msg_init_inline, msg_size,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_OK
from mqcore.binding.core cimport SocketCore, looked_in_vain
from mqcore.binding.handle cimport CAN_RECV, CAN_SEND
from mqcore.binding.sending cimport give_vec, offer, take_vec, unhindered
from mqcore.binding.message cimport foresee, joined, part_from, parts_list, skip_envelope
from mqcore.sock.sock cimport sock_recv, sock_send
from mqcore.zmq.part cimport Part, part_of, parts_as
from mqcore.spi.pattern cimport PAT_SEND

from mqcore.errors import Error

cdef enum:
    DONTWAIT = 1
    SNDMORE = 2
    POLLIN = 1
    POLLOUT = 2


cdef class ZmqFace:
    """`_core`: the socket, once it is open. `_quick`: the ordinary cases are possible. `_pieces`:
    so are messages of several parts. `_begun`: parts sent with SNDMORE so far; None: none. `_rest`:
    remaining parts of a partly received message, the next one last; None: none. `_frame`: the class
    of parts without copy, derived from Part. `_edge`: the object behind FD, mqcore/zmq/fd.py; None:
    FD was never requested. `_before`: earlier values of `_core`; a call on another thread may still
    be inside one of them."""
    _frame = Part
    cdef SocketCore core
    cdef atomic[uint32_t] quick       # after `core` and `_pieces` are set: threads look at it first
    cdef public bint _pieces
    cdef public object _edge
    cdef list _begun
    cdef list _rest
    cdef list _before
    cdef object __weakref__

    def __cinit__(self):
        self._before = []

    @property
    def _core(self):
        return self.core

    @_core.setter
    def _core(self, SocketCore core):
        with cython.critical_section(self):
            if self.core is not None and self.core is not core:
                self._before.append(self.core)
            self.core = core

    @property
    def _quick(self):
        return self.quick.load() != 0

    @_quick.setter
    def _quick(self, bint quick):
        self.quick.store(quick)

    # -- messages in pieces ------------------------------------------------------------------------

    def _begin(self, part):
        """Keep a part that was given with SNDMORE."""
        with cython.critical_section(self):
            if self._begun is None:
                self._begun = [part]
            else:
                self._begun.append(part)

    def _take_begun(self):
        """What was given with SNDMORE; empty: nothing. The caller sends it or puts it back."""
        cdef list begun
        with cython.critical_section(self):
            begun, self._begun = self._begun, None
        return [] if begun is None else begun

    def _put_begun(self, list begun):
        """It was not sent: the next part is still a part of it."""
        with cython.critical_section(self):
            if begun:
                self._begun = begun if self._begun is None else begun + self._begun

    @property
    def _more(self):
        """Parts of a message that was received in part are left."""
        return self._rest is not None

    cdef int leave(self, list rest) except -1:
        """Keep parts for the calls to come, the next one last. Behind those that another thread has
        left meanwhile, so that no part is lost."""
        with cython.critical_section(self):
            self._rest = rest if self._rest is None else rest + self._rest
        return 0

    cdef list take_rest(self):
        """All parts that are left, the next one first; None: there are none."""
        cdef list rest
        with cython.critical_section(self):
            rest, self._rest = self._rest, None
        if rest is not None:
            rest.reverse()
        return rest

    cdef object next_part(self, bint* more):
        """The next part that is left; None: there is none. more: others follow."""
        cdef object part = None
        with cython.critical_section(self):
            if self._rest is not None:
                part = self._rest.pop()
                more[0] = len(self._rest) > 0
                if not more[0]:
                    self._rest = None
        return part

    def _first(self, list parts, bint copy, bint track):
        """The first of a message's parts; the others are left for the next calls."""
        cdef object part = parts[0]
        cdef bint more = len(parts) > 1
        if more:
            self.leave(parts[:0:-1])
        return self.shown(part, more, copy, track)

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
            if self._edge is None:
                raise self._again()
            self._edge.calm()     # the FD signals when it can
            rc = offer(self.core, v.at, v.n, 0)
            if rc == MQ_AGAIN or rc == MQ_FULL:
                raise self._again()
            if rc == MQ_OK:
                v.n = 0
                return 0
        try:
            self.core.push_late(v.at, v.n, rc, seen, ...)
        except Error as error:
            raise self._failed(error) from error
        v.n = 0
        return 0

    cdef int take_late(self, MsgVec* v, int rc, uint32_t seen, bint wait) except -1:
        """What a receive that ended with `rc` leaves to do."""
        if not wait and rc == MQ_AGAIN:
            looked_in_vain(self.core)
            raise self._again()
        try:
            self.core.pull_late(v, rc, seen, ...)
        except Error as error:
            raise self._failed(error) from error
        return 0

    cdef inline bint plain(self) noexcept:
        """A receive is but a look at the pipes."""
        cdef SocketCore core = self.core
        return unhindered(core) and not (core.answers or core.n_kept.load()
                                         or core.level is not None)

    cdef int take(self, MsgVec* v, bint wait) except -1:
        """Receive one message into v. 1: it would have to wait."""
        try:
            self.core.check()
            if wait and self.core.answers:
                self.core.pull_owing(v, ...)
            elif wait:
                self.core.pull(v, ...)
            elif self.core.answers:
                return self.core.pull_now_owing(v) != MQ_OK
            else:
                return self.core.pull_now(v, 1, INT64_MAX) != MQ_OK
        except Error as error:
            raise self._failed(error) from error
        return 0

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data, int flags=0, bint copy=True, bint track=False, routing_id=None,
             group=None):
        """Send one part, the whole message or with SNDMORE a piece of it. NOBLOCK: Again instead of
        waiting. Returns a MessageTracker with track."""
        cdef Msg m
        cdef bint pinned = False
        cdef uint32_t seen
        cdef int rc
        cdef SocketCore core
        if not self.quick.load() or track or group is not None or routing_id is not None:
            return self._send(data, flags, copy, track, routing_id, group)
        core = self.core
        if not unhindered(core):
            return self._send(data, flags, copy, track, routing_id, group)
        if flags & ~DONTWAIT or self._begun is not None or not PyBytes_CheckExact(data):
            return self.send_other(data, flags, copy)
        if PyBytes_GET_SIZE(data) <= MSG_INLINE_MAX:
            msg_init_inline(&m, <const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            seen = core.s.change.load()
            rc = sock_send(core.s, &m, 1)     # what offer() would look at has been looked at
            if rc == MQ_OK:
                if core.answers:
                    core.forgive()
                return
        else:
            part_from(&m, core.plane.plane.pool, &core.arena, data, &pinned)
            seen = core.s.change.load()
            rc = offer(core, &m, 1, 0)
        if rc != MQ_OK:
            self.put_late(&m, rc, seen, not flags)
        if pinned and core.plane.on_pins is not None:
            core.plane.on_pins()

    cdef object send_other(self, data, int flags, bint copy):
        """A piece of a message, the last of several, a frame or another buffer."""
        cdef object part = data
        if isinstance(data, Part):
            part = (<Part> data).content()
            if (<Part> data).held is not None or (<Part> data)._group:
                return self._send(data, flags, copy, False, None, None)
        if (flags & ~(DONTWAIT | SNDMORE) or not PyObject_CheckBuffer(part)
                or not self.core.s.flags & PAT_SEND or flags & SNDMORE and not self._pieces):
            return self._send(data, flags, copy, False, None, None)
        if flags & SNDMORE:
            self._begin(part if PyBytes_CheckExact(part) else PyBytes_FromObject(part))
        elif self._begun is not None:
            self.finish(part, not flags & DONTWAIT)
        elif copy or PyBytes_CheckExact(part):
            self.give([part], not flags & DONTWAIT)
        else:                     # by reference, from a size on
            return self._send(data, flags, copy, False, None, None)

    cdef int finish(self, object part, bint wait) except -1:
        """Send what was given with SNDMORE and its last part. Again keeps what was given, so that
        the last part can be sent again; another error ends the message."""
        cdef list begun = self._take_begun()
        try:
            self.give(begun + [part], wait)
        except self._again:
            self._put_begun(begun)
            raise
        return 0

    cdef int give(self, list parts, bint wait) except -1:
        """Send a whole message."""
        cdef SocketCore core = self.core
        cdef MsgVec* v
        cdef uint32_t seen
        cdef int rc
        try:
            v = core._parts(parts)
        except Error as error:    # a buffer with gaps
            raise self._failed(error) from error
        seen = core.s.change.load()
        rc = offer(core, v.at, v.n, 0)
        if rc == MQ_OK:
            v.n = 0
            give_vec(core, v)
            return 0
        try:
            self.put_late_parts(v, rc, seen, wait)
        finally:
            give_vec(core, v)
        return 0

    def send_multipart(self, msg_parts, int flags=0, bint copy=True, bint track=False,
                       routing_id=None, group=None):
        """Send a message of several parts."""
        cdef list parts
        if (not self.quick.load() or flags & ~DONTWAIT or track or group is not None
                or routing_id is not None or self._begun is not None or type(msg_parts) is not list
                or not (copy or len(msg_parts) > 1) or not unhindered(self.core)):
            return self._send_multipart(msg_parts, flags, copy, track, routing_id, group)
        parts = msg_parts
        if not parts:
            return self._send_multipart(parts, flags, copy, track, None, None)
        for part in parts:
            if not PyBytes_CheckExact(part):
                if not PyObject_CheckBuffer(part):     # the error is raised there
                    return self._send_multipart(parts, flags, copy, track, None, None)
                parts = bare(parts)
                break
        self.give(parts, not flags)

    # -- receiving ---------------------------------------------------------------------------------

    def recv(self, int flags=0, bint copy=True, bint track=False):
        """The next part: bytes, or a Frame without copy. NOBLOCK: Again instead of waiting."""
        cdef MsgVec* v
        cdef object part
        cdef bint more = False
        cdef SocketCore core
        if self._rest is not None:
            part = self.next_part(&more)
            if part is not None:
                return self.shown(part, more, copy, track)
        if not self.quick.load() or flags & ~DONTWAIT:
            return self._recv(flags, copy, track)
        core = self.core
        v = take_vec(core)
        try:
            self.fetch(v, not flags)
            return self.first_of(v) if copy else self.first_frame_of(v, track)
        finally:
            give_vec(core, v)

    cdef object shown(self, part, bint more, bint copy, bint track):
        """A part, as bytes or a frame, as requested."""
        if isinstance(part, Part):
            return (<Part> part).bytes if copy else part
        return part if copy else part_of(self._frame, part, more, self.tracker_of(track))

    cdef object tracker_of(self, bint track):
        """The tracker of a received part, which no socket uses."""
        return self._frame._finished if track else None

    cdef inline int fetch(self, MsgVec* v, bint wait) except -1:
        """A message into v, or Again. Where plain() holds, without take()'s questions."""
        cdef uint32_t seen
        cdef int rc
        if self._edge is not None:
            self.fetch_watched(v, wait)
        elif self.plain():
            seen = self.core.s.change.load()
            rc = sock_recv(self.core.s, v)
            if rc != MQ_OK:
                self.take_late(v, rc, seen, wait)
        elif self.take(v, wait):
            looked_in_vain(self.core)
            raise self._again()
        return 0

    cdef int fetch_watched(self, MsgVec* v, bint wait) except -1:
        """The same where FD is watched, which is readable afterwards as long as there is more."""
        cdef object edge = self._edge
        if wait and self.core.recv_ns != 0:
            self.take(v, True)
        elif self.take(v, False):
            edge.calm()           # before the last look: what comes after it makes FD readable
            if self.take(v, False):
                raise self._again()
        if self.left():
            if edge.low:
                edge.ring()
        elif not self.core.s.armed.load() >> <int> edge.place & 1:       # it may be readable
            edge.calm()
            if self.left():
                edge.ring()
        return 0

    cdef bint left(self) except -1:
        """There is another message."""
        try:
            return self.core.can() & CAN_RECV
        except Error:             # another thread has closed the socket; this message was received
            return False

    cdef bytes first_of(self, MsgVec* v):
        """The first part; the others are what comes next."""
        cdef SocketCore core = self.core
        cdef size_t first = skip_envelope(v, 0)
        cdef size_t size = msg_size(&v.at[first])
        if v.n - first > 1:
            self.leave(parts_list(v, first + 1, v.n)[::-1])
        elif size >= core.s.port.landing.least.load() or core.s.port.landing.size.load():
            foresee(&core.s.port.landing, core.plane.plane.pool, size)
        else:
            return PyBytes_FromStringAndSize(<char*> msg_data(&v.at[first]), size)
        return joined(v, first, first + 1)

    cdef object first_frame_of(self, MsgVec* v, bint track):
        """The same, as frames."""
        cdef list parts = self.parts_of(v, False, track)
        if len(parts) > 1:
            self.leave(parts[:0:-1])
        return parts[0]

    cdef list parts_of(self, MsgVec* v, bint copy, bint track):
        cdef size_t first = skip_envelope(v, 0)
        if copy:
            return parts_list(v, first, v.n)
        return parts_as(self._frame, self.core, v, first, self.tracker_of(track))

    def recv_multipart(self, int flags=0, bint copy=True, bint track=False):
        """A whole message (what is left of one that was received in part): a list of its parts."""
        cdef list rest = None if self._rest is None else self.take_rest()
        cdef Py_ssize_t left
        if rest is not None:
            left = len(rest)
            return [self.shown(rest[at], at + 1 < left, copy, track) for at in range(left)]
        if not self.quick.load() or flags & ~DONTWAIT:
            return self._recv_multipart(flags, copy, track)
        return self.whole(not flags, copy, track)

    def _whole(self, bint wait, bint copy, bint track):
        """The parts of the next message, of a socket that is open."""
        return self.whole(wait, copy, track)

    cdef list whole(self, bint wait, bint copy, bint track):
        cdef SocketCore core = self.core      # an option may replace it meanwhile
        cdef MsgVec* v = take_vec(core)
        try:
            self.fetch(v, wait)
            return self.parts_of(v, copy, track)
        finally:
            give_vec(core, v)

    def recv_into(self, buffer, /, *, Py_ssize_t nbytes=0, int flags=0):
        """Receive one part into a buffer, at most `nbytes` of it (0: all that fits). How long the
        part is, even if that is more."""
        return self.into(buffer, nbytes, flags)

    def _recv_into(self, buffer, Py_ssize_t nbytes, int flags):
        return self.into(buffer, nbytes, flags)

    cdef Py_ssize_t into(self, buffer, Py_ssize_t nbytes, int flags) except -1:
        cdef Py_buffer view
        cdef bytes part
        if nbytes < 0:
            raise ValueError(f"{nbytes=} must be non-negative")
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if nbytes > view.len:
                raise ValueError(f"{nbytes=} too big for memoryview of {view.len}B")
            part = ZmqFace.recv(self, flags)
            memcpy(view.buf, PyBytes_AS_STRING(part),
                   min(nbytes or view.len, PyBytes_GET_SIZE(part)))
            return PyBytes_GET_SIZE(part)
        finally:
            PyBuffer_Release(&view)

    cdef int events(self) except -1:
        """POLLIN and POLLOUT, as they are now."""
        cdef int bits
        if not self.quick.load() or self._edge is not None or not unhindered(self.core):
            return self._events()
        try:
            bits = self.core.can()
        except Error as error:      # another thread has just closed it
            raise self._failed(error) from error
        return ((POLLIN if bits & CAN_RECV or self._rest is not None else 0)
                | (POLLOUT if bits & CAN_SEND else 0))

    def _now(self):
        """EVENTS."""
        return self.events()


cdef list bare(list parts):
    """Frames as what they are made of: large bytes go by reference."""
    return [(<Part> part).content() if isinstance(part, Part) else part for part in parts]


def look(sockets):
    """([(socket, events)] of the sockets in [(socket or descriptor, mask)] that are ready now,
    whether there are descriptors)."""
    cdef list found = []
    cdef bint others = False
    cdef int events
    for one, mask in sockets:
        if isinstance(one, ZmqFace):
            events = (<ZmqFace> one).events() & <int> mask
            if events:
                found.append((one, events))
        else:
            others = True
    return found, others
