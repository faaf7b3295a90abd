"""SocketCore: sending and receiving for Python, over the nogil socket of sock.pyx.

A call tries first and returns at once if it can, holding the GIL (a short write with the GIL held
is far cheaper than getting the GIL back). Only a call that must wait lets go of it. Everything rare
(options, links, counters, closing) is in handle.pyx.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset
from libcpp.atomic cimport memory_order_release

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_INLINE_MAX, MSG_MORE, msg_close, msg_copy, msg_data, msg_init,
    msg_init_inline, msg_init_ref, msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport Owner, landing_clear, pool_drain_released, pyobj_new
from mqcore.base.status cimport MQ_AGAIN, MQ_FAILED, MQ_FULL, MQ_OK
from mqcore.sock.arrays cimport batch_of, bytes_of, numbers_of
from mqcore.sock.handle cimport OWES_ANSWER, OWES_CLAIMED, OWES_NOTHING
from mqcore.sock.message cimport (
    Message, foresee, joined, message_end, message_new, part_copy, part_from, parts_list,
    skip_envelope,
)
from mqcore.sock.pinned cimport Pin, Pinned, pinned_new
from mqcore.sock.sock cimport (
    sock_changed, sock_query, sock_recv, sock_recv_many, sock_send_many,
)
from mqcore.spi.pattern cimport PAT_SEND, Q_TOPICS, op_later

import time

from mqcore.errors import (
    MessageTooLarge, NotSubscribed, RecvTimeout, SendTimeout, StateError, UsageError,
)

cdef enum:
    BURST = 512               # messages gathered before they are given to the socket


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


cdef int64_t at_least_one(str name, most) except -1:
    if isinstance(most, bool) or not hasattr(most, "__index__"):
        raise UsageError(f"{name} must be a whole number, not {most!r}")
    if not 1 <= most <= INT64_MAX:
        raise UsageError(f"{name} must be between 1 and {INT64_MAX}, got {most}")
    return most


@cython.no_gc_clear
cdef class SocketCore(SocketHandle):
    # -- inside ------------------------------------------------------------------------------------

    cdef MsgVec* take_vec(self) except NULL:
        cdef MsgVec* v
        if not self.vec_taken.exchange(1):
            return &self.vec
        v = <MsgVec*> calloc(1, sizeof(MsgVec))
        if v == NULL:
            raise MemoryError()
        return v

    cdef void give_vec(self, MsgVec* v) noexcept:
        if v == &self.vec:
            vec_clear(v)
            self.vec_taken.store(0, memory_order_release)   # SYNC: hands the vector to the next one
        else:
            vec_fini(v)
            free(v)

    cdef int attempt(self, Msg* parts, size_t n, uint32_t peer) except -1:
        """One try. MQ_OK, MQ_AGAIN, MQ_FULL; others raise. The parts stay ours unless MQ_OK."""
        cdef int rc = offer(self, parts, n, peer)
        if rc != MQ_OK and rc != MQ_AGAIN and rc != MQ_FULL:
            self.fail(rc, True)
        return rc

    cdef int push(self, Msg* parts, size_t n, object timeout) except -1:
        """Send, waiting as long as it takes."""
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

    def _fail_recv(self, timeout):
        raise RecvTimeout(f"no message came{self._span(timeout, self.recv_ns)}")

    def _span(self, timeout, int64_t default):
        if timeout is ...:
            timeout = default / 1e9
        if timeout is None:
            return ""
        return " at once" if timeout == 0 else f" within {timeout:g} s"

    cdef int pull(self, MsgVec* v, object timeout) except -1:
        """Receive one message into v, waiting as long as it takes."""
        cdef uint32_t seen = self.s.change.load()
        cdef int rc
        if self.n_kept.load() and self.take_kept(v):
            if self._level is not None:
                self._level.settle()
            return 0
        if self.s.lock.load():
            with nogil:
                rc = sock_recv(self.s, v)
        else:
            rc = sock_recv(self.s, v)
        if self._level is not None:
            self._level.settle()
        if rc != MQ_OK:
            self.pull_late(v, rc, seen, timeout)
        return 0

    cdef int pull_late(self, MsgVec* v, int rc, uint32_t seen, object timeout) except -1:
        """What a try that ended with `rc` leaves to do: wait and try again."""
        cdef int64_t deadline
        cdef bint late = False
        if rc != MQ_AGAIN:
            self.fail(rc, False)
        deadline = self.deadline(timeout, self.recv_ns)
        while True:
            self.refuse_idle()
            if deadline == 0 or late:
                if late:
                    landing_clear(&self.s.port.landing)
                self._fail_recv(timeout)
            if self.owned.load():     # after `seen` was read: claim() says so, then changes it
                self.check()
            late = self.wait(seen, deadline)
            seen = self.s.change.load()
            if self.n_kept.load() and self.take_kept(v):
                rc = MQ_OK
            else:
                with nogil:
                    rc = sock_recv(self.s, v)
            if self._level is not None:
                self._level.settle()
            if rc == MQ_OK:
                return 0
            if rc != MQ_AGAIN:
                self.fail(rc, False)

    cdef int pull_many(self, MsgVec* v, size_t most, int64_t most_bytes, object timeout) except -1:
        """At least one message, at most `most` or so many bytes; waits for the first only."""
        cdef size_t count = 0
        cdef int rc = MQ_AGAIN
        if self.answers:
            return self.pull_owing(v, timeout)
        if not self.n_kept.load():
            with nogil:
                rc = sock_recv_many(self.s, v, most, most_bytes, &count)
        if count == 0:
            if rc == MQ_FAILED:
                self.fail(rc, False)
            self.pull(v, timeout)
            if most > 1:
                with nogil:
                    rc = sock_recv_many(self.s, v, most - 1, most_bytes, &count)
        if rc == MQ_FAILED:
            op_later()
        if self._level is not None:
            self._level.settle()
        return 0

    cdef int refuse_router(self) except -1:
        if self.routes:
            raise UsageError(f"{'a raw' if self.plugin.name in ('respondent', 'bus') else 'a'} "
                             f"{self.plugin.name}'s message has a routing id, which recv() would "
                             "lose", hint="use recv_msg(), or recv_parts() which gives [id, ...]")
        return 0

    cdef int owe(self) except -1:
        """Claim the next request for a plain receive: nobody else takes one until it is answered.
        What takes none gives the claim back with unowe()."""
        cdef uint32_t owes = OWES_NOTHING
        if not self.answers or self.owes.compare_exchange_strong(owes, OWES_CLAIMED):
            return 0
        raise StateError(
            "another thread is receiving from this socket" if owes == OWES_CLAIMED else
            "the last request has not been answered",
            hint="answer it with send(), or use recv_msg() and Message.reply(), which any "
                 "number of threads can do at once")

    cdef void unowe(self) noexcept:
        cdef uint32_t owes = OWES_CLAIMED
        self.owes.compare_exchange_strong(owes, OWES_NOTHING)

    cdef void forgive(self) noexcept:
        """The request has been answered, or another has taken its place."""
        cdef uint32_t owes = OWES_ANSWER
        self.owes.compare_exchange_strong(owes, OWES_NOTHING)

    cdef int pull_owing(self, MsgVec* v, object timeout) except -1:
        """pull() of a plain receive where requests are answered in order."""
        self.owe()
        try:
            self.pull(v, timeout)
        except BaseException:
            self.unowe()
            raise
        self.owes.store(OWES_ANSWER)
        return 0

    cdef int pull_now_owing(self, MsgVec* v) except -1:
        cdef int rc = MQ_AGAIN
        self.owe()
        try:
            rc = self.pull_now(v, 1, INT64_MAX)
        finally:
            if rc != MQ_OK:
                self.unowe()
        self.owes.store(OWES_ANSWER if rc == MQ_OK else OWES_NOTHING)
        return rc

    cdef int refuse_idle(self) except -1:
        if not self.chooses or sock_query(self.s, Q_TOPICS, NULL, 0):
            return 0
        if self.groups:
            raise NotSubscribed("no group is joined, so nothing can arrive",
                                hint='join("weather") the groups that radios send to')
        raise NotSubscribed("nothing is subscribed, so nothing can arrive",
                            hint='subscribe(b"") is everything')

    # -- sending -----------------------------------------------------------------------------------

    def send(self, data, *, timeout=...):
        """Send one message of one part: all or nothing. `bytes` go by reference, other buffers are
        copied. Waits for room or a peer up to `timeout` seconds; then SendTimeout, and it is not
        sent."""
        cdef Msg m
        cdef bint pinned = False
        cdef uint32_t seen
        cdef int rc
        ready(self)
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
            self.give_vec(v)

    cdef MsgVec* _parts(self, parts) except NULL:
        """Handles of a sequence of buffers; the caller gives the vector back."""
        cdef MsgVec* v
        cdef Msg m
        cdef bint pinned = False
        cdef size_t i
        if isinstance(parts, (bytes, bytearray, memoryview, str)):
            raise UsageError("send_parts() takes a sequence of parts", hint="use send() for one")
        v = self.take_vec()
        try:
            for part in parts:
                part_from(&m, self.plane.plane.pool, &self.arena, part, &pinned)
                if vec_push(v, &m):
                    raise MemoryError()
            if v.n == 0:
                raise UsageError("a message has at least one part",
                                 hint='send(b"") is an empty one')
        except BaseException:
            self.give_vec(v)
            raise
        for i in range(v.n - 1):
            v.at[i].flags |= MSG_MORE
        if self.groups and v.n > 1:
            v.at[0].flags |= MSG_GROUP
        if pinned and self.plane.on_pins is not None:
            self.plane.on_pins()
        return v

    cdef int push_vec(self, MsgVec* v, int64_t deadline, object timeout, size_t* count) except -1:
        """Send every message in v, one locking and one write for as many as there is room for.
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
        cdef size_t count = 0
        cdef int64_t deadline
        self.check()
        deadline = self.deadline(timeout, self.send_ns)
        v = self.take_vec()
        try:
            try:
                for data in messages:
                    self._gather(v, data, &pinned)
                    if v.n >= BURST:
                        self.push_vec(v, deadline, timeout, &count)
            finally:
                self.push_vec(v, deadline, timeout, &count)
            if pinned and self.plane.on_pins is not None:
                self.plane.on_pins()
            return count
        finally:
            self.give_vec(v)

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
        ends at split[i], the rest is its second; -1: it is one part. Returns n; SendTimeout.sent
        says how many went."""
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
        v = self.take_vec()
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
            self.give_vec(v)
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

    # -- receiving ---------------------------------------------------------------------------------

    def recv(self, *, timeout=...):
        """Receive one message, its parts joined. Waits up to `timeout` seconds, then
        RecvTimeout."""
        cdef MsgVec* v
        cdef size_t size
        ready(self)
        if self.routes:
            self.refuse_router()
        v = self.take_vec()
        try:
            if self.answers:
                self.pull_owing(v, timeout)
            else:
                self.pull(v, timeout)
            size = msg_size(&v.at[v.n - 1])
            if size >= self.s.port.landing.least.load() or self.s.port.landing.size.load():
                foresee(&self.s.port.landing, self.plane.plane.pool, size)
            elif v.n == 1:
                return PyBytes_FromStringAndSize(<char*> msg_data(v.at), size)
            return joined(v, skip_envelope(v, 0), v.n)
        finally:
            self.give_vec(v)

    def recv_parts(self, *, timeout=...):
        """Receive one message as a list of its parts. ROUTER: the routing id comes first."""
        cdef MsgVec* v
        self.check()
        v = self.take_vec()
        try:
            if self.answers:
                self.pull_owing(v, timeout)
            else:
                self.pull(v, timeout)
            return parts_list(v, skip_envelope(v, 0), v.n)
        finally:
            self.give_vec(v)

    def recv_msg(self, *, timeout=...):
        """Receive one Message: parts (large ones without a copy), peer, reply()."""
        cdef MsgVec* v
        self.check()
        v = self.take_vec()
        try:
            self.pull(v, timeout)
            self.forgive()
            return message_new(self, v, 0, v.n, time.time())
        finally:
            self.give_vec(v)

    def recv_into(self, buffer, *, timeout=...):
        """Receive one message into a writable buffer; returns its length. If it does not fit,
        MessageTooLarge, and the message stays for the next call."""
        cdef Py_buffer view
        cdef MsgVec* v
        cdef size_t i, at = 0, size = 0, start
        self.check()
        self.refuse_router()
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        v = NULL
        try:
            v = self.take_vec()
            if self.answers:
                self.pull_owing(v, timeout)
            else:
                self.pull(v, timeout)
            start = skip_envelope(v, 0)
            for i in range(start, v.n):
                size += msg_size(&v.at[i])
            if <Py_ssize_t> size > view.len:
                self.keep(v)
                self.forgive()
                sock_changed(self.s)      # a thread that waits may have room for it
                if self._level is not None:
                    self._level.settle()
                raise MessageTooLarge(f"a message of {size} bytes does not fit in {view.len}",
                                      hint="give a larger buffer; the message is kept")
            for i in range(start, v.n):
                memcpy(<char*> view.buf + at, msg_data(&v.at[i]), msg_size(&v.at[i]))
                at += msg_size(&v.at[i])
            return size
        finally:
            PyBuffer_Release(&view)
            if v != NULL:
                self.give_vec(v)

    def recv_many(self, max=1024, *, timeout=...):
        """Receive up to `max` messages, waiting for the first only. A list of bytes."""
        cdef MsgVec* v
        self.check()
        self.refuse_router()
        at_least_one("max", max)
        v = self.take_vec()
        try:
            self.pull_many(v, max, INT64_MAX, timeout)
            return bodies(v)
        except MemoryError:
            self.keep(v)
            raise
        finally:
            self.give_vec(v)

    def recv_batch(self, max=65536, *, max_bytes=8 << 20, timeout=...):
        """Receive up to `max` messages or about `max_bytes` as one Batch (NumPy arrays), waiting
        for the first only."""
        cdef MsgVec* v
        self.check()
        self.refuse_router()
        at_least_one("max", max)
        at_least_one("max_bytes", max_bytes)
        v = self.take_vec()
        try:
            self.pull_many(v, max, max_bytes, timeout)
            return batch_of(v)
        except MemoryError:
            self.keep(v)
            raise
        finally:
            self.give_vec(v)

    # -- tries, for the async faces ----------------------------------------------------------------

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
            self.give_vec(v)

    cdef int pull_now(self, MsgVec* v, size_t most, int64_t most_bytes) except -1:
        """pull_many() that never waits and makes no exception of it: MQ_OK or MQ_AGAIN."""
        cdef size_t count = 0
        cdef int rc
        if self.n_kept.load() and self.take_kept(v):
            rc = MQ_OK
            if most > 1 and not self.answers:
                with nogil:
                    rc = sock_recv_many(self.s, v, most - 1, most_bytes, &count)
                if rc == MQ_FAILED:
                    op_later()
                rc = MQ_OK
        elif most > 1 and not self.answers:
            with nogil:
                rc = sock_recv_many(self.s, v, most, most_bytes, &count)
            if rc == MQ_FAILED and count:
                op_later()
                rc = MQ_OK
        elif self.s.lock.load():
            with nogil:
                rc = sock_recv(self.s, v)
        else:
            rc = sock_recv(self.s, v)
        if self._level is not None:
            self._level.settle()
        if rc != MQ_OK and rc != MQ_AGAIN:
            self.fail(rc, False)
        return rc

    def _try_recv(self, int kind, arg=None):
        """What the call would return, or None if it would wait. kind: 0 recv, 1 recv_parts,
        2 recv_msg, 3 recv_into, 4 recv_many, 5 recv_batch."""
        cdef MsgVec* v
        cdef int rc
        cdef size_t most = 1
        cdef int64_t most_bytes = INT64_MAX
        if kind == 3:
            try:
                return self.recv_into(arg, timeout=0)
            except RecvTimeout:
                return None
        self.check()
        if kind != 1 and kind != 2:
            self.refuse_router()
        if kind == 4:
            most = at_least_one("max", arg)
        elif kind == 5:
            most = at_least_one("max", arg[0])
            most_bytes = at_least_one("max_bytes", arg[1])
        v = self.take_vec()
        try:
            if self.answers and kind != 2:
                rc = self.pull_now_owing(v)
            else:
                rc = self.pull_now(v, most, most_bytes)
            if rc != MQ_OK:
                self.refuse_idle()
                return None
            if kind == 2:
                self.forgive()
            if kind == 0:
                return joined(v, skip_envelope(v, 0), v.n)
            if kind == 1:
                return parts_list(v, skip_envelope(v, 0), v.n)
            if kind == 2:
                return message_new(self, v, 0, v.n, time.time())
            return bodies(v) if kind == 4 else batch_of(v)
        finally:
            self.give_vec(v)

    def _try_answer(self, Message message, parts):
        """reply(): True if sent, False if its peer has no room now."""
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
            self.give_vec(v)
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
            self.give_vec(v)

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
