"""SocketSender: a socket's sending calls. See core.pyx for receiving.

A call tries at once with the GIL: a short write with it held is far cheaper than getting it back.
Only a call that must wait lets go of it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memmove, memset

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_INLINE_MAX, MSG_MORE, msg_close, msg_copy, msg_init,
    msg_init_inline, msg_init_ref, vec_fini, vec_push,
)
from mqcore.base.slab cimport Owner, pool_drain_released, pyobj_new
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_OK
from mqcore.binding.arrays cimport bytes_of, numbers_of
from mqcore.binding.arguments cimport check_timeout, several
from mqcore.binding.message cimport Message, part_copy, part_from
from mqcore.binding.pinned cimport Pin, Pinned, pinned_new
from mqcore.sock.sock cimport sock_send_many
from mqcore.spi.pattern cimport PAT_SEND


from mqcore.errors import SendTimeout, StateError
from mqcore.errors import UsageError

cdef enum:
    BURST = 512               # messages gathered before they are given to the socket


@cython.no_gc_clear
cdef class SocketSender(SocketInternals):
    # -- inside ------------------------------------------------------------------------------------

    cdef int attempt(self, Msg* parts, size_t n, uint32_t peer) except -1:
        """One try. MQ_OK, MQ_AGAIN, MQ_FULL; others raise. The parts stay ours unless MQ_OK."""
        cdef int rc = offer(self, parts, n, peer)
        if rc != MQ_OK and rc != MQ_AGAIN and rc != MQ_FULL:
            self.fail(rc, True)
        return rc

    cdef int push(self, Msg* parts, size_t n, object timeout) except -1:
        """Send, waiting as long as it takes."""
        check_timeout(timeout)
        cdef uint32_t seen = self.s.change.load()
        cdef int rc = self.attempt(parts, n, 0)
        if rc != MQ_OK:
            self.push_late(parts, n, rc, seen, timeout)
        return 0

    cdef int push_late(self, Msg* parts, size_t n, int rc, uint32_t seen, object timeout) except -1:
        """What a try that ended with `rc` leaves to do: wait and try again."""
        cdef int64_t deadline
        cdef bint late = False
        if rc != MQ_AGAIN and rc != MQ_FULL:
            self.fail(rc, True)
        deadline = self.deadline(timeout, self.send_ns)
        while True:
            if deadline == 0 or late:
                self._fail_send(rc, timeout)
            if self.owned.load():     # after `seen` was read: claim() says so, then changes it
                self.check()
            late = self.wait(seen, deadline)
            seen = self.s.change.load()
            rc = self.attempt(parts, n, 0)
            if rc == MQ_OK:
                return 0

    def _fail_send(self, int rc, timeout, sent=0):
        full = rc == MQ_FULL
        peers = self.s.n_pipes.load()
        text = ("no peer is connected" if not full else
                f"all {peers} peers are at their high-water mark" if peers > 1 else
                "the peer is at its high-water mark" if peers else
                "no peer is connected, and as many messages wait as send_hwm allows")
        raise SendTimeout(
            f"the message could not be sent{self._span(timeout, self.send_ns)}: {text}",
            why="full" if full else "no_peer", peers=peers, sent=sent)

    def _span(self, timeout, int64_t default):
        if timeout is ...:
            timeout = default / 1e9
        if timeout is None:
            return ""
        return " at once" if timeout == 0 else f" within {timeout:g} s"

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data, *, timeout=...):
        """Send one message of one part: all or nothing. `bytes` go by reference, other buffers are
        copied. Waits for space or a peer for up to `timeout` seconds. Then it raises SendTimeout,
        and the message is not sent."""
        cdef Msg m
        cdef bint pinned = False
        cdef uint32_t seen
        cdef int rc
        ready(self)
        check_timeout(timeout)
        if PyBytes_CheckExact(data) and PyBytes_GET_SIZE(data) <= MSG_INLINE_MAX:
            msg_init_inline(&m, <const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        else:
            part_from(&m, self.plane.plane.pool, &self.arena, data, &pinned)
        seen = self.s.change.load()
        rc = offer(self, &m, 1, 0)
        if rc != MQ_OK:
            try:
                self.push_late(&m, 1, rc, seen, timeout)
            except BaseException:
                msg_close(&m)
                raise
        if pinned and self.plane.on_pins is not None:
            self.plane.on_pins()

    def send_parts(self, parts, *, timeout=...):
        """Send one message of several parts: all or nothing, and never mixed with others."""
        cdef MsgVec* v
        self.check()
        v = self._parts(parts)
        try:
            self.push(v.at, v.n, timeout)
            v.n = 0
        finally:
            give_vec(self, v)

    cdef MsgVec* _parts(self, parts) except NULL:
        """Handles of a sequence of buffers; the caller gives the vector back."""
        cdef MsgVec* v
        cdef Msg m
        cdef bint pinned = False
        cdef size_t i
        if type(parts) is not list and type(parts) is not tuple:
            parts = several("send_parts() takes a sequence of parts", parts, True)
        v = take_vec(self)
        try:
            for part in parts:
                part_from(&m, self.plane.plane.pool, &self.arena, part, &pinned)
                if vec_push(v, &m):
                    raise MemoryError()
            if v.n == 0:
                raise UsageError("a message has at least one part",
                                 hint='send(b"") is an empty one')
        except BaseException:
            give_vec(self, v)
            raise
        for i in range(v.n - 1):
            v.at[i].flags |= MSG_MORE
        if self.groups and v.n > 1:
            v.at[0].flags |= MSG_GROUP
        if pinned and self.plane.on_pins is not None:
            self.plane.on_pins()
        return v

    cdef int push_vec(self, MsgVec* v, int64_t deadline, object timeout, size_t* count) except -1:
        """Send every message in v, one locking and one write for as many as there is space for.
        count grows by what went; v is empty on success and holds the rest on failure."""
        cdef size_t done, taken
        cdef uint32_t seen
        cdef int rc
        cdef bint late = False
        while v.n:
            seen = self.s.change.load()
            done = 0
            taken = 0
            with nogil:
                rc = sock_send_many(self.s, v, 0, &done, &taken)
            count[0] += taken
            if done:
                memmove(v.at, v.at + done, (v.n - done) * sizeof(Msg))
                v.n -= done
            if rc == MQ_OK:
                break
            if rc != MQ_AGAIN and rc != MQ_FULL:
                self.fail(rc, True)
            if deadline == 0 or late:
                self._fail_send(rc, timeout, count[0])
            if self.owned.load():     # after `seen` was read: claim() says so, then changes it
                self.check()
            late = self.wait(seen, deadline)
        return 0

    def send_many(self, messages, *, timeout=...):
        """Send each of `messages` (buffers, or sequences of parts). Returns how many; if time runs
        out, SendTimeout.sent says how many went. What comes before a bad item is sent."""
        cdef MsgVec* v
        cdef bint pinned = False
        cdef bint pushes = False
        cdef size_t count = 0
        cdef int64_t deadline
        self.check()
        deadline = self.deadline(timeout, self.send_ns)
        messages = several("send_many() takes several messages", messages, False)
        v = take_vec(self)
        try:
            try:
                for data in messages:
                    self._gather(v, data, &pinned)
                    if v.n >= BURST:
                        pushes = True
                        self.push_vec(v, deadline, timeout, &count)
                        pushes = False
            except BaseException as error:
                if not pushes:
                    self._send_before(v, deadline, timeout, &count, isinstance(error, Exception))
                raise
            self.push_vec(v, deadline, timeout, &count)
            if pinned and self.plane.on_pins is not None:
                self.plane.on_pins()
            return count
        finally:
            give_vec(self, v)

    cdef int _send_before(self, MsgVec* v, int64_t deadline, object timeout, size_t* count,
                          bint waits) except -1:
        """Send what came before a bad item. After Ctrl-C it does not wait for space."""
        try:
            self.push_vec(v, deadline if waits else 0, timeout, count)
        except SendTimeout:
            if waits:
                raise
        return 0

    cdef int _gather(self, MsgVec* v, object data, bint* pinned) except -1:
        """Append one message, a buffer or a sequence of parts; nothing of it if a part is bad."""
        cdef Msg m
        cdef size_t before = v.n
        try:
            for part in data if isinstance(data, (list, tuple)) else (data,):
                part_from(&m, self.plane.plane.pool, &self.arena, part, pinned)
                m.flags = MSG_MORE
                if vec_push(v, &m):
                    msg_close(&m)
                    raise MemoryError()
            if v.n == before:
                raise UsageError("a message has at least one part", hint='b"" is an empty one')
            if self.groups:
                v.at[before].flags |= MSG_GROUP
            v.at[v.n - 1].flags = 0
        except BaseException:
            while v.n > before:
                v.n -= 1
                msg_close(&v.at[v.n])
            raise
        return 0

    def send_batch(self, data, offsets, *, split=None, timeout=...):
        """Send message i = data[offsets[i]:offsets[i+1]] for each i. data: C-contiguous uint8 array
        or buffer; offsets: n + 1 ascending integers. split: n integers: the first part of message i
        ends at split[i], and the rest is its second part. -1 means a single part. Returns n.
        SendTimeout.sent is the number of messages sent before the time-out."""
        return self._send_batch(data, offsets, timeout, None, split)

    def _send_batch(self, data, offsets, timeout, bytes group, split=None):
        """group: put in front of each, RADIO's."""
        cdef const unsigned char[::1] raw
        cdef Msg m
        cdef MsgVec* v
        cdef int64_t deadline
        cdef size_t count = 0
        cdef const uint8_t* at
        cdef Py_ssize_t i, n, start, end, cut
        cdef const int64_t[::1] cuts = None
        self.check()
        raw = bytes_of(data)
        cdef const int64_t[::1] ends = numbers_of("offsets", offsets)
        n = ends.shape[0] - 1
        if n < 0:
            raise UsageError("offsets has n + 1 entries for n messages, got none")
        if split is not None:
            cuts = numbers_of("split", split)
            if cuts.shape[0] != n:
                raise UsageError(f"split has {cuts.shape[0]} entries for {n} messages")
        deadline = self.deadline(timeout, self.send_ns)
        v = take_vec(self)
        try:
            for i in range(n):
                start = ends[i]
                end = ends[i + 1]
                if start < 0 or end < start or end > raw.shape[0]:
                    raise UsageError(
                        f"offsets[{i}:{i + 2}] = {start}, {end} do not lie in data of "
                        f"{raw.shape[0]} bytes", hint=f"{count} messages were sent")
                if group is not None:
                    self._group(&m, group)
                    if vec_push(v, &m):
                        msg_close(&m)
                        raise MemoryError()
                if cuts is not None and cuts[i] >= 0:
                    cut = cuts[i]
                    if cut < start or cut > end:
                        raise UsageError(f"split[{i}] = {cut} does not lie between {start} and "
                                         f"{end}", hint=f"{count} messages were sent")
                    at = &raw[start] if cut > start else NULL
                    if part_copy(&m, self.plane.plane.pool, &self.arena, at, cut - start):
                        raise MemoryError()
                    m.flags |= MSG_MORE
                    if vec_push(v, &m):
                        msg_close(&m)
                        raise MemoryError()
                    start = cut
                at = &raw[start] if end > start else NULL
                if part_copy(&m, self.plane.plane.pool, &self.arena, at, end - start):
                    raise MemoryError()
                if vec_push(v, &m):
                    msg_close(&m)
                    raise MemoryError()
                if v.n >= BURST:
                    self.push_vec(v, deadline, timeout, &count)
            self.push_vec(v, deadline, timeout, &count)
        finally:
            give_vec(self, v)
        return n

    cdef int _group(self, Msg* m, bytes group) except -1:
        """A group as the first part of a RADIO's message."""
        if part_copy(m, self.plane.plane.pool, &self.arena, <uint8_t*> PyBytes_AS_STRING(group),
                     PyBytes_GET_SIZE(group)):
            raise MemoryError()
        m.flags = MSG_MORE | MSG_GROUP
        return 0

    def send_ref(self, data, *, timeout=...):
        """Send a buffer without copying it. Leave it alone until the returned Pinned is done."""
        return self._send_ref(data, timeout, None)

    def _send_ref(self, data, timeout, bytes group):
        cdef Msg[2] parts
        cdef Owner* owner
        cdef Py_buffer view
        cdef Pinned pinned
        self.check()
        if isinstance(data, str):
            raise UsageError("a message is bytes, not str", hint="send text.encode()")
        pinned, pin = pinned_new(self, data)
        PyObject_GetBuffer((<Pin> pin).view, &view, PyBUF_SIMPLE)
        Py_INCREF(pin)
        owner = pyobj_new(self.plane.plane.pool, <void*> pin)
        if owner == NULL:
            Py_DECREF(pin)
            PyBuffer_Release(&view)
            raise MemoryError()
        msg_init(&parts[0])
        msg_init_ref(&parts[1], owner, <uint8_t*> view.buf, view.len)
        PyBuffer_Release(&view)           # pin holds the memoryview, which holds the memory
        try:
            if group is None:
                self.push(&parts[1], 1, timeout)
            else:
                self._group(&parts[0], group)
                self.push(parts, 2, timeout)
        except BaseException:
            msg_close(&parts[0])
            msg_close(&parts[1])
            pool_drain_released(self.plane.plane.pool)
            raise
        if self.plane.on_pins is not None:
            self.plane.on_pins()
        return pinned

    # -- answers, and tries for the async faces ----------------------------------------------------

    def _try_send(self, parts, bint single, uint32_t peer=0):
        """0: sent; else the Status that says why not now (1: no peer, 10: full)."""
        cdef Msg m
        cdef MsgVec* v
        cdef bint pinned = False
        cdef int rc
        self.check()
        if single:
            part_from(&m, self.plane.plane.pool, &self.arena, parts, &pinned)
            rc = -1
            try:
                rc = self.attempt(&m, 1, peer)
            finally:
                if rc != MQ_OK:
                    msg_close(&m)
            if pinned and self.plane.on_pins is not None:
                self.plane.on_pins()
            return rc
        v = self._parts(parts)
        try:
            rc = self.attempt(v.at, v.n, peer)
            if rc == MQ_OK:
                v.n = 0
            return rc
        finally:
            give_vec(self, v)

    def _try_answer(self, Message message, parts):
        """reply(): True if sent, False if the peer's queue is full."""
        cdef MsgVec* v
        cdef MsgVec whole
        cdef Msg m
        cdef size_t i
        cdef int rc = MQ_AGAIN
        self.check()
        if self.s.ops.send_to == NULL or not self.s.flags & PAT_SEND:
            raise StateError(f"a {self.plugin.name} socket has no answers to give",
                             hint="reply() is for rep and router messages")
        if len(parts) == 1 and isinstance(parts[0], (list, tuple)):   # as request() takes them
            parts = parts[0]
        v = self._parts(parts)
        memset(&whole, 0, sizeof(MsgVec))
        if message.answered.exchange(1):
            give_vec(self, v)
            raise StateError("this message has been answered", hint="a request is answered once")
        try:
            for i in range(message.envelope.n):
                msg_copy(&m, &message.envelope.at[i])
                m.flags = MSG_MORE | MSG_ENVELOPE
                vec_push(&whole, &m)
            for i in range(v.n):
                vec_push(&whole, &v.at[i])
            v.n = 0
            rc = self.attempt(whole.at, whole.n, message.peer_id)
            if rc == MQ_OK:
                whole.n = 0
            return rc == MQ_OK
        finally:
            if rc != MQ_OK:
                message.answered.store(0)
            vec_fini(&whole)
            give_vec(self, v)

    def _reply(self, Message message, tuple parts, timeout):
        cdef uint32_t seen
        cdef int64_t deadline
        cdef bint late = False
        self.check()
        deadline = self.deadline(timeout, self.send_ns)
        while True:
            seen = self.s.change.load()
            if self._try_answer(message, parts):
                return
            if deadline == 0 or late:
                self._fail_send(MQ_FULL, timeout)
            if self.owned.load():     # after `seen` was read: claim() says so, then changes it
                self.check()
            late = self.wait(seen, deadline)
