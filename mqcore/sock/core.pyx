"""SocketCore: sending and receiving for Python, over the nogil socket of sock.pyx.

A call tries first and returns at once if it can, holding the GIL (a short write with the GIL held is
far cheaper than getting the GIL back). Only a call that must wait lets go of it. Everything rare
(endpoints, peers, events, closing) is in mqcore/api and mqcore/control, through the underscored
methods at the end.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from libc.stdint cimport INT64_MAX, int32_t, uint8_t

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_MORE, msg_close, msg_copy, msg_data, msg_init, msg_init_copy, msg_init_ref, msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport Owner, pool_drain_released, pyobj_new
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_CLOSED, MQ_DROPPED, MQ_FULL, MQ_GONE, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK, MQ_STATE,
    MQ_UNSUPPORTED,
)
from mqcore.link.engine cimport (
    E_TERM, Engine, EngineConfig, engine_at, engine_new, engine_pending, engine_post, engine_start,
)
from mqcore.link.pipe cimport Link
from mqcore.sock.message cimport (
    Message, joined, message_end, message_new, part_from, parts_list, skip_envelope,
)
from mqcore.sock.sock cimport (
    FULL_DISCONNECT, NOTIFIERS, WAIT_TIMEOUT, Ended, account, sock_abandon, sock_changed,
    sock_close_input, sock_drop_all, sock_enter, sock_free, sock_join, sock_leave, sock_new, sock_outstanding,
    sock_query, sock_recv, sock_recv_many, sock_send, sock_send_to, sock_subscribe, sock_watch,
)
from mqcore.sock.wait cimport sock_wait
from mqcore.reactor.includes cimport close
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_IDENTITY, PAT_RECV, PAT_SEND, Q_CAN_RECV, Q_CAN_SEND, Q_SUBSCRIBERS, Q_TOPICS,
    PatternPlugin,
)
from mqcore.spi.pipe cimport DROP_REASONS, Pipe

import threading
import time

from mqcore.errors import (
    Forked, MessageTooLarge, NoSuchPeer, NotSubscribed, NotSupported, OptionError, PeerGone, RecvTimeout,
    SendTimeout, SocketClosed, StateError, UsageError, WaitTimeout,
)

cdef enum:
    HOLD_GIL = 64 * 1024      # larger messages are sent without the GIL
    SMALL = 8                 # parts on the stack

cdef object MAIN = threading.main_thread().ident
cdef object get_ident = threading.get_ident


@cython.no_gc_clear  # __dealloc__ needs the plane: a collected cycle must not clear it first
cdef class SocketCore:
    def __cinit__(self, *args, **kwargs):
        self.send_ns = -1
        self.recv_ns = -1

    def __dealloc__(self):
        cdef MsgVec* v = self.spare.exchange(NULL)
        if v != NULL:
            vec_fini(v)
            free(v)
        vec_fini(&self.held)
        if self.s != NULL and not self.plane.forked:
            sock_free(self.s)

    # -- inside ----------------------------------------------------------------------------------------

    cdef MsgVec* take_vec(self) except NULL:
        cdef MsgVec* v = self.spare.exchange(NULL)
        if v == NULL:
            v = <MsgVec*> calloc(1, sizeof(MsgVec))
            if v == NULL:
                raise MemoryError()
        return v

    cdef void give_vec(self, MsgVec* v) noexcept:
        vec_clear(v)
        v = self.spare.exchange(v)
        if v != NULL:
            vec_fini(v)
            free(v)

    cdef int check(self) except -1:
        if self.plane is None or self.s == NULL:
            raise SocketClosed("this socket was never opened")
        if self.plane.forked:
            raise Forked("this socket belongs to the parent process",
                         hint="make a new socket in the child; pass URLs, not sockets")
        if self.s.closing.load():
            raise SocketClosed("the socket is closed")
        if self.device_owned:
            raise UsageError("a device owns this socket", hint="stop the device first")
        if self.plane.plane.pool.released.load() != NULL:
            pool_drain_released(self.plane.plane.pool)
        return 0

    cdef int64_t deadline(self, object timeout, int64_t default) except -2:
        """Monotonic ns; -1 for ever; 0: do not wait."""
        cdef double seconds
        if timeout is ...:
            if default <= 0:
                return default
            return now_ns() + default
        if timeout is None:
            return -1
        if isinstance(timeout, str) or isinstance(timeout, bool):
            raise UsageError(f"timeout must be seconds or None, not {timeout!r}")
        seconds = timeout
        if seconds < 0 or seconds != seconds:
            raise UsageError(f"timeout must not be negative, got {timeout!r}",
                             hint="0 does not wait, None waits for ever")
        if seconds == 0:
            return 0
        if seconds > 4e9:
            return -1
        return now_ns() + <int64_t> (seconds * 1e9)

    cdef int fail(self, int rc, bint sending) except -1:
        """A Status that is no success and no reason to wait, as an exception."""
        if rc == MQ_CLOSED:
            raise SocketClosed("the socket is closed")
        if rc == MQ_STATE:
            if not sending:
                raise StateError("there is no request to wait for", hint="send a request first")
            if self.answers:
                raise StateError("there is no request to answer", hint="recv() one first")
            raise StateError("the last request has not been answered",
                             hint="recv() first, or make the socket with strict=False")
        if rc == MQ_NO_PEER:
            raise NoSuchPeer("the peer that this message is for is not connected",
                             hint="mandatory=False drops such messages instead, counted")
        if rc == MQ_GONE:
            raise PeerGone("the peer that owed the answer has left", hint="send the request again")
        if rc == MQ_INVALID:
            raise UsageError("the pattern cannot send this message",
                             hint="a ROUTER message starts with a routing id; conflate takes one part")
        if rc == MQ_UNSUPPORTED:
            verb = "send" if sending else "recv"
            raise UsageError(f"a {self.plugin.name} socket cannot {verb}()")
        if rc == MQ_NOMEM:
            raise MemoryError()
        raise RuntimeError(f"status {rc}")

    cdef int wait(self, uint32_t seen, int64_t deadline) except -1:
        """Sleep without the GIL; 1: time is up."""
        cdef int verdict
        cdef bint slices = get_ident() == MAIN
        with nogil:
            verdict = sock_wait(self.s, seen, deadline, slices)
        PyErr_CheckSignals()
        if self.plane.forked:
            self.check()
        return verdict == WAIT_TIMEOUT

    cdef int attempt(self, Msg* parts, size_t n, uint32_t peer) except -1:
        """One try. MQ_OK, MQ_AGAIN, MQ_FULL; others raise. The parts stay ours unless MQ_OK."""
        cdef int rc
        cdef size_t i
        cdef size_t size = 0
        for i in range(n):
            size += msg_size(&parts[i])
        if size > HOLD_GIL or self.s.lock.load():
            with nogil:
                rc = sock_send_to(self.s, peer, parts, n) if peer else sock_send(self.s, parts, n)
        else:
            rc = sock_send_to(self.s, peer, parts, n) if peer else sock_send(self.s, parts, n)
        if rc == MQ_OK:
            if not peer:
                self.owes = False
            return MQ_OK
        if rc == MQ_AGAIN or rc == MQ_FULL:
            return rc
        self.fail(rc, True)

    cdef int push(self, Msg* parts, size_t n, object timeout) except -1:
        """Send, waiting as long as it takes."""
        cdef int64_t deadline
        cdef uint32_t seen = self.s.change.load()
        cdef int rc = self.attempt(parts, n, 0)
        cdef bint late = False
        if rc == MQ_OK:
            return 0
        deadline = self.deadline(timeout, self.send_ns)
        self.s.users.fetch_add(1)
        try:
            while True:
                if deadline == 0 or late:
                    self._fail_send(rc, timeout)
                late = self.wait(seen, deadline)
                seen = self.s.change.load()
                rc = self.attempt(parts, n, 0)
                if rc == MQ_OK:
                    return 0
        finally:
            self.s.users.fetch_sub(1)

    def _fail_send(self, int rc, timeout, sent=0):
        full = rc == MQ_FULL
        peers = self.s.n_pipes
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

    cdef int pull(self, MsgVec* v, object timeout) except -1:
        """Receive one message into v, waiting as long as it takes."""
        cdef uint32_t seen = self.s.change.load()
        cdef int rc
        cdef int64_t deadline
        cdef bint late = False
        if self.held.n:
            self.held, v[0] = v[0], self.held
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
        if rc == MQ_OK:
            return 0
        if rc != MQ_AGAIN:
            self.fail(rc, False)
        deadline = self.deadline(timeout, self.recv_ns)
        self.s.users.fetch_add(1)
        try:
            while True:
                if self.plugin.name == "sub" and sock_query(self.s, Q_TOPICS, NULL, 0) == 0:
                    raise NotSubscribed("nothing is subscribed, so nothing can arrive",
                                        hint='subscribe(b"") is everything')
                if deadline == 0 or late:
                    raise RecvTimeout(f"no message came{self._span(timeout, self.recv_ns)}")
                late = self.wait(seen, deadline)
                seen = self.s.change.load()
                with nogil:
                    rc = sock_recv(self.s, v)
                if self._level is not None:
                    self._level.settle()
                if rc == MQ_OK:
                    return 0
                if rc != MQ_AGAIN:
                    self.fail(rc, False)
        finally:
            self.s.users.fetch_sub(1)

    cdef int pull_many(self, MsgVec* v, size_t most, int64_t most_bytes, object timeout) except -1:
        """At least one message, at most `most` or so many bytes; waits for the first only."""
        cdef size_t count = 0
        cdef int rc = MQ_OK
        if not self.held.n and not self.answers:
            with nogil:
                rc = sock_recv_many(self.s, v, most, most_bytes, &count)
        if count == 0:
            self.pull(v, timeout)
            if most > 1 and not self.answers:
                with nogil:
                    sock_recv_many(self.s, v, most - 1, most_bytes, &count)
        if self._level is not None:
            self._level.settle()
        return 0

    cdef int refuse_router(self) except -1:
        if self.routes:
            raise UsageError("a router's message has a routing id, which recv() would lose",
                             hint="use recv_msg(), or recv_parts() which gives [id, ...]")
        return 0

    cdef int owe(self) except -1:
        if self.answers:
            if self.owes:
                raise StateError(
                    "the last request has not been answered",
                    hint="answer it with send(), or use recv_msg() and Message.reply(), which any "
                         "number of threads can do at once")
        return 0

    # -- sending ---------------------------------------------------------------------------------------

    def send(self, data, *, timeout=...):
        """Send one message of one part: all or nothing. `bytes` go by reference, other buffers are
        copied. Waits for room or a peer up to `timeout` seconds; then SendTimeout, and it is not sent."""
        cdef Msg m
        cdef bint pinned = False
        self.check()
        part_from(&m, self.plane.plane.pool, data, True, &pinned)
        try:
            self.push(&m, 1, timeout)
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
                part_from(&m, self.plane.plane.pool, part, True, &pinned)
                if vec_push(v, &m):
                    raise MemoryError()
            if v.n == 0:
                raise UsageError("a message has at least one part", hint='send(b"") is an empty one')
        except BaseException:
            self.give_vec(v)
            raise
        for i in range(v.n - 1):
            v.at[i].flags |= MSG_MORE
        if pinned and self.plane.on_pins is not None:
            self.plane.on_pins()
        return v

    def send_many(self, messages, *, timeout=...):
        """Send each of `messages` (buffers, or sequences of parts). Returns how many; if time runs
        out, SendTimeout.sent says how many went."""
        cdef Msg m
        cdef bint pinned = False
        cdef int count = 0
        cdef int64_t deadline
        self.check()
        deadline = self.deadline(timeout, self.send_ns)
        for data in messages:
            left = None if deadline == -1 else 0 if deadline == 0 else max(
                0.0, (deadline - now_ns()) / 1e9)
            try:
                if isinstance(data, (list, tuple)):
                    self.send_parts(data, timeout=left)
                else:
                    part_from(&m, self.plane.plane.pool, data, True, &pinned)
                    try:
                        self.push(&m, 1, left)
                    except BaseException:
                        msg_close(&m)
                        raise
            except SendTimeout as error:
                error.sent = count
                raise
            count += 1
        if pinned and self.plane.on_pins is not None:
            self.plane.on_pins()
        return count

    def send_batch(self, data, offsets, *, timeout=...):
        """Send message i = data[offsets[i]:offsets[i+1]] for each i. data: C-contiguous uint8 array or
        buffer; offsets: n + 1 ascending integers. Returns n; SendTimeout.sent says how many went."""
        cdef const unsigned char[::1] raw
        cdef Msg m
        cdef int64_t deadline
        cdef Py_ssize_t i, n, start, end
        import numpy
        self.check()
        raw = memoryview(data).cast("B")
        cdef const int64_t[::1] ends = numpy.ascontiguousarray(offsets, dtype=numpy.int64)
        n = ends.shape[0] - 1
        if n < 0:
            raise UsageError("offsets has n + 1 entries for n messages, got none")
        deadline = self.deadline(timeout, self.send_ns)
        for i in range(n):
            start = ends[i]
            end = ends[i + 1]
            if start < 0 or end < start or end > raw.shape[0]:
                raise UsageError(f"offsets[{i}:{i + 2}] = {start}, {end} do not lie in data of {raw.shape[0]} bytes",
                                 hint=f"{i} messages were sent")
            if msg_init_copy(&m, self.plane.plane.pool, &raw[start] if end > start else NULL, end - start):
                raise MemoryError()
            try:
                self.push(&m, 1, None if deadline == -1 else 0 if deadline == 0 else max(
                    0.0, (deadline - now_ns()) / 1e9))
            except SendTimeout as error:
                msg_close(&m)
                error.sent = i
                raise
            except BaseException:
                msg_close(&m)
                raise
        return n

    def send_ref(self, data, *, timeout=...):
        """Send a buffer without copying it. Leave it alone until the returned Pinned is done."""
        cdef Msg m
        cdef Owner* owner
        cdef Py_buffer view
        cdef Pinned pinned
        self.check()
        if isinstance(data, str):
            raise UsageError("a message is bytes, not str", hint="send text.encode()")
        pinned = Pinned.__new__(Pinned)
        pin = Pin.__new__(Pin)
        (<Pin> pin).token = pinned.token = [False]
        (<Pin> pin).view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        pinned.core = self
        PyObject_GetBuffer((<Pin> pin).view, &view, PyBUF_SIMPLE)
        Py_INCREF(pin)
        owner = pyobj_new(self.plane.plane.pool, <void*> pin)
        if owner == NULL:
            Py_DECREF(pin)
            PyBuffer_Release(&view)
            raise MemoryError()
        msg_init_ref(&m, owner, <uint8_t*> view.buf, view.len)
        PyBuffer_Release(&view)           # pin holds the memoryview, which holds the memory
        try:
            self.push(&m, 1, timeout)
        except BaseException:
            msg_close(&m)
            pool_drain_released(self.plane.plane.pool)
            raise
        if self.plane.on_pins is not None:
            self.plane.on_pins()
        return pinned

    # -- receiving -------------------------------------------------------------------------------------

    def recv(self, *, timeout=...):
        """Receive one message, its parts joined. Waits up to `timeout` seconds, then RecvTimeout."""
        cdef MsgVec* v
        self.check()
        self.refuse_router()
        self.owe()
        v = self.take_vec()
        try:
            self.pull(v, timeout)
            self.owes = self.answers
            return joined(v, skip_envelope(v, 0), v.n)
        finally:
            self.give_vec(v)

    def recv_parts(self, *, timeout=...):
        """Receive one message as a list of its parts. ROUTER: the routing id comes first."""
        cdef MsgVec* v
        self.check()
        self.owe()
        v = self.take_vec()
        try:
            self.pull(v, timeout)
            self.owes = self.answers
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
            self.owes = False
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
        self.owe()
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        v = NULL
        try:
            v = self.take_vec()
            self.pull(v, timeout)
            start = skip_envelope(v, 0)
            for i in range(start, v.n):
                size += msg_size(&v.at[i])
            if <Py_ssize_t> size > view.len:
                self.held, v[0] = v[0], self.held
                if self._level is not None:
                    self._level.settle()
                raise MessageTooLarge(f"a message of {size} bytes does not fit in {view.len}",
                                      hint="give a larger buffer; the message is kept")
            self.owes = self.answers
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
        cdef size_t at, end, count
        cdef list out = []
        self.check()
        self.refuse_router()
        self.owe()
        if max < 1:
            raise UsageError(f"max must be at least 1, got {max}")
        v = self.take_vec()
        try:
            self.pull_many(v, max, INT64_MAX, timeout)
            self.owes = self.answers
            at = 0
            while at < v.n:
                end = message_end(v, at)
                out.append(joined(v, skip_envelope(v, at), end))
                at = end
            return out
        finally:
            self.give_vec(v)

    def recv_batch(self, max=65536, *, max_bytes=8 << 20, timeout=...):
        """Receive up to `max` messages or about `max_bytes` as one Batch (NumPy arrays), waiting for
        the first only."""
        cdef MsgVec* v
        self.check()
        self.refuse_router()
        self.owe()
        if max < 1 or max_bytes < 1:
            raise UsageError("max and max_bytes must be at least 1")
        v = self.take_vec()
        try:
            self.pull_many(v, max, max_bytes, timeout)
            self.owes = self.answers
            return batch_of(v)
        finally:
            self.give_vec(v)

    # -- tries, for the async faces -------------------------------------------------------------------

    def _try_send(self, parts, bint single, uint32_t peer=0):
        """0: sent; else the Status that says why not now (1: no peer, 10: full)."""
        cdef Msg m
        cdef MsgVec* v
        cdef bint pinned = False
        cdef int rc
        self.check()
        if single:
            part_from(&m, self.plane.plane.pool, parts, True, &pinned)
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

    def _try_recv(self, int kind, arg=None):
        """What the call would return, or None if it would wait. kind: 0 recv, 1 recv_parts,
        2 recv_msg, 3 recv_into, 4 recv_many, 5 recv_batch."""
        try:
            if kind == 0:
                return self.recv(timeout=0)
            if kind == 1:
                return self.recv_parts(timeout=0)
            if kind == 2:
                return self.recv_msg(timeout=0)
            if kind == 3:
                return self.recv_into(arg, timeout=0)
            if kind == 4:
                return self.recv_many(arg, timeout=0)
            return self.recv_batch(arg[0], max_bytes=arg[1], timeout=0)
        except RecvTimeout:
            return None

    def _try_answer(self, Message message, parts):
        """reply(): True if sent, False if its peer has no room now."""
        cdef MsgVec* v
        cdef MsgVec whole
        cdef Msg m
        cdef size_t i
        cdef int rc
        self.check()
        if message.replied:
            raise StateError("this message has been answered", hint="a request is answered once")
        if self.s.ops.send_to == NULL or not self.s.flags & PAT_SEND:
            raise StateError(f"a {self.plugin.name} socket has no answers to give",
                             hint="reply() is for rep and router messages")
        v = self._parts(parts)
        memset(&whole, 0, sizeof(MsgVec))
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
                message.replied = True
            return rc == MQ_OK
        finally:
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
            late = self.wait(seen, deadline)

    # -- for mqcore/api and mqcore/control ---------------------------------------------------------------

    def _open(self, PlaneCore plane, PatternPlugin plugin, uint32_t number, dict shake, dict marks):
        """Make the socket. shake: pattern, number, peers, routing_id, metadata (encoded), sp,
        publishes. marks: send_hwm, recv_hwm, send_hwm_bytes, recv_hwm_bytes (None: no limit),
        send_conflate, recv_conflate."""
        cdef Sock* s
        if plane.forked:
            raise Forked("this context belongs to the parent process", hint="make a new one in the child")
        s = sock_new(plane.plane, plugin.ops, number)
        if s == NULL:
            raise MemoryError()
        self.plane = plane
        self.plugin = plugin
        self.s = s
        self.answers = (s.flags & PAT_EXCHANGE) and s.ops.send_to != NULL
        self.routes = plugin.name == "router"
        self._keep = [shake["pattern"].encode(), (" " + " ".join(shake["peers"]) + " ").encode(),
                      shake["routing_id"], shake["metadata"]]
        s.port.shake.pattern = <bytes> self._keep[0]
        s.port.shake.peers = <bytes> self._keep[1]
        s.port.shake.routing_id = <const uint8_t*> <char*> <bytes> self._keep[2]
        s.port.shake.routing_id_size = len(self._keep[2])
        s.port.shake.metadata = <const uint8_t*> <char*> <bytes> self._keep[3]
        s.port.shake.metadata_size = len(self._keep[3])
        s.port.shake.number = shake["number"]
        s.port.shake.sp = shake["sp"]
        s.port.shake.publishes = shake["publishes"]
        s.port.shake.announce_id = s.flags & PAT_IDENTITY != 0
        s.port.send.msgs = limit(marks["send_hwm"])
        s.port.send.bytes = limit(marks["send_hwm_bytes"])
        s.port.send.conflate = marks["send_conflate"]
        s.port.recv.msgs = limit(marks["recv_hwm"])
        s.port.recv.bytes = limit(marks["recv_hwm_bytes"])
        s.port.recv.conflate = marks["recv_conflate"]

    def _set(self, str name, value):
        """send_timeout, recv_timeout (seconds or None), immediate, on_full (index), device; the four
        marks, for peers that connect from now on."""
        if name == "send_timeout":
            self.send_ns = -1 if value is None else <int64_t> (value * 1e9)
        elif name == "recv_timeout":
            self.recv_ns = -1 if value is None else <int64_t> (value * 1e9)
        elif name == "immediate":
            self.s.immediate = value
        elif name == "send_hwm":
            self.s.port.send.msgs = limit(value)
        elif name == "send_hwm_bytes":
            self.s.port.send.bytes = limit(value)
        elif name == "recv_hwm":
            self.s.port.recv.msgs = limit(value)
        elif name == "recv_hwm_bytes":
            self.s.port.recv.bytes = limit(value)
        elif name == "on_full":
            self.s.on_full = value
        elif name == "device":
            self.device_owned = value
        else:
            raise KeyError(name)

    def _set_pattern_option(self, str name, value):
        """One of the pattern's own rows. False: it has no such option."""
        cdef bytes raw = value if isinstance(value, bytes) else b""
        cdef int64_t number = 0 if isinstance(value, bytes) else int(value)
        cdef bytes key = name.encode()
        cdef int rc
        sock_enter(self.s)
        rc = self.s.ops.set_option(self.s.pattern, key, number, <const uint8_t*> <char*> raw, len(raw))
        sock_leave(self.s, True)
        if rc == MQ_INVALID:
            raise OptionError(f"{name}={value!r} is not possible here")
        return rc == MQ_OK

    def _adopt(self, int fd, bint connected, int prio, double handshake_timeout, double grace,
               double heartbeat, double heartbeat_timeout, double heartbeat_ttl, int64_t max_message_size):
        """Give a connected non-blocking descriptor to a new engine, which owns it now. Seconds; 0: none.
        Returns the engine's slot; OSError or MemoryError leave the descriptor with the caller."""
        cdef EngineConfig config
        cdef Engine* e
        config.connected = connected
        config.prio = prio
        config.handshake_timeout = <int64_t> (handshake_timeout * 1e9)
        config.grace = <int64_t> (grace * 1e9)
        config.heartbeat = <int64_t> (heartbeat * 1e9)
        config.heartbeat_timeout = <int64_t> (heartbeat_timeout * 1e9)
        config.heartbeat_ttl = <int64_t> (heartbeat_ttl * 1e9)
        config.max_message_size = max_message_size
        if self.s.closing.load():
            raise SocketClosed("the socket is closed")
        if sock_watch(self.s) < 0:
            raise OSError("no descriptors left for the socket's poll set")
        self.s.engines.fetch_add(1)
        e = engine_new(self.plane.plane, self.s.watch.io, &self.s.watch, &self.s.port, fd, &config)
        if e == NULL:
            self.s.engines.fetch_sub(1)
            raise MemoryError()
        slot = e.slot
        engine_start(e)
        return slot

    def _end_engine(self, uint32_t slot):
        """Tell an engine of this socket to close its connection."""
        engine_post(engine_at(self.plane.plane, slot), E_TERM)

    def _end_pipe(self, uint32_t peer):
        """The same by peer; False if there is no such peer."""
        cdef Pipe* pipe
        cdef bint found = False
        sock_enter(self.s)
        pipe = self.s.all
        while pipe != NULL:
            if pipe.id == peer:
                pipe.far_ops.close(pipe.far)
                found = True
                break
            pipe = pipe.all_next
        sock_leave(self.s, True)
        return found

    def _unacked(self, uint32_t slot):
        return engine_pending(engine_at(self.plane.plane, slot))

    def _join(self, SocketCore other, int prio, int other_prio):
        """inproc: connect to other. (our peer id, its peer id)"""
        cdef uint32_t mine = 0, its = 0
        cdef int rc = sock_join(self.s, other.s, &mine, &its, prio, other_prio)
        if rc:
            raise MemoryError()
        return mine, its

    def _connects(self, int delta):
        """Endpoints of our own that may bring a peer: messages wait for them."""
        self.s.connects.fetch_add(<uint32_t> delta)
        sock_changed(self.s)

    def _subscribe(self, bytes topic, int on):
        cdef int rc
        self.check()
        rc = sock_subscribe(self.s, <const uint8_t*> <char*> topic, len(topic), on)
        if rc != MQ_OK:
            self.fail(rc, True)

    def _abandon(self):
        self.check()
        sock_abandon(self.s)

    def _query(self, int what, bytes data=b""):
        cdef int64_t answer
        if self.s == NULL or self.plane.forked:
            self.check()
        answer = sock_query(self.s, what, <const uint8_t*> <char*> data, len(data))
        return answer

    def _can(self):
        """(recv would not wait, send would not wait), exact now."""
        self.check()
        readable = self.held.n > 0 or (
            self.s.flags & PAT_RECV != 0 and sock_query(self.s, Q_CAN_RECV, NULL, 0) > 0)
        writable = self.s.flags & PAT_SEND != 0 and (
            sock_query(self.s, Q_CAN_SEND, NULL, 0) > 0
            or (self.s.connects.load() > 0 and not self.s.immediate and self.s.n_pipes == 0
                and self.s.n_waiting.load() < self.s.port.send.msgs))
        return readable, writable

    def _attached(self):
        """How many peers the pattern has now: handshaken and not refused."""
        return 0 if self.s == NULL else self.s.n_pipes

    def _change(self):
        return self.s.change.load()

    def _wait(self, uint32_t seen, timeout):
        """Sleep until something changes after `seen`. False: time is up."""
        cdef int64_t deadline = self.deadline(timeout, -1)
        if deadline == 0:
            return self.s.change.load() != seen
        self.s.users.fetch_add(1)
        try:
            return not self.wait(seen, deadline)
        finally:
            self.s.users.fetch_sub(1)

    def _notify_changed(self):
        sock_changed(self.s)

    def _add_notifier(self, int fd):
        """Watch this eventfd's arming; returns its place. It is written once per _arm()."""
        cdef int i
        sock_enter(self.s)
        try:
            for i in range(NOTIFIERS):
                if self.s.notifiers[i].fd < 0:
                    self.s.notifiers[i].fd = fd
                    return i
        finally:
            sock_leave(self.s, True)
        raise UsageError(f"more than {NOTIFIERS} loops and pollers wait on one socket")

    def _remove_notifier(self, int place):
        if self.plane.forked:
            return
        sock_enter(self.s)
        self.s.notifiers[place].armed.store(0)
        self.s.notifiers[place].fd = -1
        sock_leave(self.s, True)

    def _arm(self, int place):
        """From now on the next change writes the eventfd. Look again after arming."""
        self.s.notifiers[place].armed.exchange(1)

    @property
    def closed(self):
        return self.s == NULL or self.plane.forked or self.s.closing.load() != 0

    def _close_input(self):
        """First step of closing: calls fail, waiters wake. False if it was done before."""
        if self.s.closing.load():
            return False
        sock_close_input(self.s)
        return True

    def _outstanding(self):
        """Messages taken from the application that no kernel or peer has yet."""
        return sock_outstanding(self.s)

    def _drop_all(self):
        """Last step: what is left is counted as dropped, pipes and engines are told to end."""
        sock_drop_all(self.s)

    def _close_descriptors(self):
        """In a forked child: the poll set and its eventfd, untouched otherwise."""
        if self.s != NULL and self.s.watching.load():
            self.plane.plane.poller.close(self.s.watch.set)
            close(self.s.wake)

    def _settled(self):
        """True when no engine, no link and no call is left inside."""
        sock_enter(self.s)
        sock_leave(self.s, True)
        return self.s.engines.load() == 0 and self.s.users.load() == 0

    def _accounts(self):
        """Everything countable, in one look: dict(sent, received, waiting, unmatched, dropped,
        live: [(peer, facts)], ended: [...], total). facts: see account_dict."""
        cdef Pipe* pipe
        cdef Ended e
        cdef Ended* ended
        cdef list live = []
        cdef list gone = []
        cdef int i
        sock_enter(self.s)
        try:
            pipe = self.s.all
            for i in range(2):
                while pipe != NULL:
                    live.append(live_account(pipe))
                    pipe = pipe.all_next
                pipe = self.s.hung
            ended = self.s.ended
            while ended != NULL:
                gone.append((ended.id, account_dict(ended)))
                ended = ended.next
            return {
                "sent": self.s.sent, "received": self.s.received, "waiting": self.s.n_waiting.load(),
                "unmatched": self.s.host.unmatched,
                "dropped": [self.s.host.dropped[i] for i in range(DROP_REASONS)],
                "live": live, "ended": gone, "total": account_dict(&self.s.total),
                "batching": self.s.batching,
            }
        finally:
            sock_leave(self.s, True)


cdef class Pin:
    """Lives as long as the data plane needs the buffer; its end is what Pinned waits for."""
    cdef object view
    cdef list token

    def __dealloc__(self):
        self.token[0] = True


cdef class Pinned:
    """What send_ref() returns: `done` once the buffer may be written again."""
    cdef list token
    cdef SocketCore core

    @property
    def done(self) -> bool:
        if not self.token[0] and self.core.plane.plane.pool.released.load() != NULL:
            pool_drain_released(self.core.plane.plane.pool)
        return self.token[0]

    def wait(self, timeout=None):
        """Until done; WaitTimeout."""
        limit = None if timeout is None else time.monotonic() + timeout
        pause = 0.0001
        while not self.done:
            if limit is not None and time.monotonic() >= limit:
                raise WaitTimeout(f"the buffer is still in use after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 2, 0.01)

    async def await_(self, timeout=None):
        """wait(), awaitable."""
        from mqcore.sock.sleep import sleep
        limit = None if timeout is None else time.monotonic() + timeout
        pause = 0.0001
        while not self.done:
            if limit is not None and time.monotonic() >= limit:
                raise WaitTimeout(f"the buffer is still in use after {timeout:g} s")
            await sleep(pause)
            pause = min(pause * 2, 0.01)

    def __repr__(self):
        return f"<Pinned {'done' if self.done else 'in use'}>"


cdef int64_t limit(value):
    return INT64_MAX if value is None else value


cdef dict account_dict(Ended* e):
    return {
        "offered": e.offered, "written": e.written, "read": e.read, "delivered": e.delivered,
        "bytes_out": e.bytes_out, "bytes_in": e.bytes_in, "since": e.since / 1e9,
        "out_dropped": [e.out_dropped[i] for i in range(DROP_REASONS)],
        "in_dropped": [e.in_dropped[i] for i in range(DROP_REASONS)],
    }


cdef tuple live_account(Pipe* pipe):
    cdef Ended e
    cdef Link* link = <Link*> pipe.link
    memset(&e, 0, sizeof(Ended))
    e.since = link.since
    account(pipe, &e)
    facts = account_dict(&e)
    facts["rtt"] = link.traffic.rtt.load() / 1e9 or None
    facts["writes"] = link.traffic.writes.load()
    facts["reads"] = link.traffic.reads.load()
    return pipe.id, facts


cdef object batch_of(MsgVec* v):
    """The messages in v as (data, offsets, split) arrays."""
    import numpy
    from mqcore.sock.batch import Batch
    cdef size_t at, end, start, i, size = 0, n = 0
    cdef unsigned char[::1] data
    cdef int[::1] offsets, split
    cdef int where = 0
    at = 0
    while at < v.n:
        end = message_end(v, at)
        for i in range(skip_envelope(v, at), end):
            size += msg_size(&v.at[i])
        n += 1
        at = end
    a_data = numpy.empty(size, numpy.uint8)
    a_offsets = numpy.empty(n + 1, numpy.int32)
    a_split = numpy.empty(n, numpy.int32)
    offsets = a_offsets
    split = a_split
    data = a_data
    offsets[0] = 0
    at = 0
    n = 0
    while at < v.n:
        end = message_end(v, at)
        start = skip_envelope(v, at)
        split[n] = where + <int> msg_size(&v.at[start])
        for i in range(start, end):
            if msg_size(&v.at[i]):
                memcpy(&data[where], msg_data(&v.at[i]), msg_size(&v.at[i]))
            where += <int> msg_size(&v.at[i])
        n += 1
        offsets[n] = where
        at = end
    return Batch(a_data, a_offsets, a_split)
