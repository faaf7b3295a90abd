"""SocketCore: receiving for Python, over the nogil socket of sock.pyx. With sending.pyx these are
all calls of a socket. A call that waits releases the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memcpy

from mqcore.base.message cimport msg_data, msg_size
from mqcore.base.slab cimport landing_clear
from mqcore.base.status cimport MQ_AGAIN, MQ_FAILED, MQ_OK
from mqcore.binding.arrays cimport batch_of
from mqcore.binding.arguments cimport at_least_one, check_timeout, writable
from mqcore.binding.handle cimport OWES_ANSWER, OWES_CLAIMED, OWES_NOTHING
from mqcore.binding.message cimport (
    GIVE_BATCH, GIVE_BYTES, GIVE_MANY, GIVE_MESSAGE, GIVE_PARTS, bodies, foresee, joined,
    message_new, parts_list, skip_envelope,
)
from mqcore.binding.sending cimport give_vec, ready, take_vec
from mqcore.sock.calls cimport sock_query
from mqcore.sock.events cimport sock_pass
from mqcore.sock.sock cimport sock_recv, sock_recv_many
from mqcore.spi.pattern cimport PAT_EXCHANGE, Q_TOPICS, op_later

import time

from mqcore.errors import MessageTooLarge, NotSubscribed, RecvTimeout, StateError
from mqcore.errors import UsageError

cdef enum:
    SURELY = 4096             # bytes for which there is memory, or nothing else works either


@cython.no_gc_clear
cdef class SocketCore(SocketSender):
    # -- inside ------------------------------------------------------------------------------------

    def _fail_recv(self, timeout):
        raise RecvTimeout(f"no message came{self._span(timeout, self.recv_ns)}")

    cdef int pull(self, MsgVec* v, object timeout) except -1:
        """Receive one message into v, waiting as long as it takes."""
        cdef uint32_t seen = self.s.change.load()
        cdef int rc
        check_timeout(timeout)
        if self.n_kept.load() and self.take_kept(v):
            if self.level is not None:
                self.settle()
            return 0
        if self.s.lock.load():
            with nogil:
                rc = sock_recv(self.s, v)
        else:
            rc = sock_recv(self.s, v)
        if self.level is not None:
            self.settle()
        if rc != MQ_OK:
            self.pull_late(v, rc, seen, timeout)
        return 0

    cdef int pull_late(self, MsgVec* v, int rc, uint32_t seen, object timeout) except -1:
        """What a try that ended with `rc` leaves to do: wait and try again."""
        cdef bint taker = not (self.answers or self.s.flags & PAT_EXCHANGE)
        if rc != MQ_AGAIN:
            self.fail(rc, False)
        try:
            return self.pull_waiting(v, seen, self.deadline(timeout, self.recv_ns), timeout, taker)
        finally:
            if taker:
                sock_pass(self.s)

    cdef int pull_waiting(self, MsgVec* v, uint32_t seen, int64_t deadline, object timeout,
                          bint taker) except -1:
        cdef bint late = False
        cdef int rc
        while True:
            self.refuse_idle()
            if deadline == 0 or late:
                if late:
                    landing_clear(&self.s.port.landing)
                looked_in_vain(self)
                self._fail_recv(timeout)
            if self.owned.load():     # after `seen` was read: claim() says so, then changes it
                self.check()
            late = self.wait(seen, deadline, taker)
            seen = self.s.change.load()
            if self.n_kept.load() and self.take_kept(v):
                rc = MQ_OK
            else:
                with nogil:
                    rc = sock_recv(self.s, v)
            if self.level is not None:
                self.settle()
            if rc == MQ_OK:
                return 0
            if rc != MQ_AGAIN:
                self.fail(rc, False)

    cdef object given(self, MsgVec* v, int kind):
        """What was taken, as the call gives it. If that cannot be made, for want of memory or of
        NumPy, the messages stay for the next call."""
        try:
            if kind == GIVE_BYTES:
                return joined(v, skip_envelope(v, 0), v.n)
            if kind == GIVE_PARTS:
                return parts_list(v, skip_envelope(v, 0), v.n)
            if kind == GIVE_MESSAGE:
                return message_new(self, v, 0, v.n, time.time())
            return bodies(v) if kind == GIVE_MANY else batch_of(v)
        except BaseException:
            if v.n:
                self.unpull(v)
            raise

    cdef int pull_many(self, MsgVec* v, size_t most, int64_t most_bytes, object timeout) except -1:
        """At least one message, at most `most` or so many bytes; waits for the first only."""
        cdef size_t count = 0
        cdef int rc = MQ_AGAIN
        check_timeout(timeout)
        if self.answers:
            return self.pull_owing(v, timeout)
        if not self.n_kept.load():
            with nogil:
                rc = sock_recv_many(self.s, v, most, most_bytes, &count)
        if count == 0:
            if rc == MQ_FAILED:
                self.fail(rc, False)
            self.pull(v, timeout)
            most -= 1 + self.take_more(v, most - 1)
            if most:
                with nogil:
                    rc = sock_recv_many(self.s, v, most, most_bytes, &count)
        if rc == MQ_FAILED:
            op_later()
        if self.level is not None:
            self.settle()
        return 0

    cdef int refuse_router(self) except -1:
        if self.routes:
            raise UsageError(f"{'a raw' if self.plugin.name in ('respondent', 'bus') else 'a'} "
                             f"{self.plugin.name}'s message has a routing id, which recv() would "
                             "lose", hint="use recv_msg(), or recv_parts() which gives [id, ...]")
        return 0

    cdef int owe(self) except -1:
        """Claim the next request for a plain receive, so that no other call takes one until it is
        answered. A receive that takes none returns the claim with unowe()."""
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

    cdef int pull_owing(self, MsgVec* v, object timeout) except -1:
        """pull() of a plain receive where requests are answered in order."""
        self.owe()
        try:
            self.pull(v, timeout)
        except BaseException:
            self.unowe()
            raise
        self.owes.store(OWES_ANSWER)
        if self.level is not None:
            self.settle()
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
        if rc == MQ_OK and self.level is not None:
            self.settle()
        return rc

    cdef int refuse_idle(self) except -1:
        if not self.chooses or sock_query(self.s, Q_TOPICS, NULL, 0):
            return 0
        if self.groups:
            raise NotSubscribed("no group is joined, so nothing can arrive",
                                hint='join("weather") the groups that radios send to')
        raise NotSubscribed("nothing is subscribed, so nothing can arrive",
                            hint='subscribe(b"") is everything')

    # -- receiving ---------------------------------------------------------------------------------

    def recv(self, *, timeout=...):
        """Receive one message, its parts joined. RecvTimeout after `timeout` seconds."""
        cdef MsgVec* v
        cdef size_t size
        ready(self)
        if self.routes:
            self.refuse_router()
        v = take_vec(self)
        try:
            if self.answers:
                self.pull_owing(v, timeout)
            else:
                self.pull(v, timeout)
            size = msg_size(&v.at[v.n - 1])
            if size >= self.s.port.landing.least.load() or self.s.port.landing.size.load():
                foresee(&self.s.port.landing, self.plane.plane.pool, size)
            elif v.n == 1 and size < SURELY:
                return PyBytes_FromStringAndSize(<char*> msg_data(v.at), size)
            return self.given(v, GIVE_BYTES)
        finally:
            give_vec(self, v)

    def recv_parts(self, *, timeout=...):
        """Receive one message as a list of its parts. ROUTER: the routing id comes first."""
        cdef MsgVec* v
        self.check()
        v = take_vec(self)
        try:
            if self.answers:
                self.pull_owing(v, timeout)
            else:
                self.pull(v, timeout)
            return self.given(v, GIVE_PARTS)
        finally:
            give_vec(self, v)

    def recv_msg(self, *, timeout=...):
        """Receive one Message: parts (large ones without a copy), peer, reply()."""
        cdef MsgVec* v
        self.check()
        v = take_vec(self)
        try:
            self.pull(v, timeout)
            self.forgive()
            return self.given(v, GIVE_MESSAGE)
        finally:
            give_vec(self, v)

    def recv_into(self, buffer, *, timeout=...):
        """Receive one message into a writable buffer; returns its length. If it does not fit,
        MessageTooLarge, and the message stays for the next call."""
        cdef Py_buffer view
        cdef MsgVec* v
        cdef size_t i, at = 0, size = 0, start
        self.check()
        self.refuse_router()
        PyObject_GetBuffer(writable(buffer), &view, PyBUF_WRITABLE)
        v = NULL
        try:
            v = take_vec(self)
            if self.answers:
                self.pull_owing(v, timeout)
            else:
                self.pull(v, timeout)
            start = skip_envelope(v, 0)
            for i in range(start, v.n):
                size += msg_size(&v.at[i])
            if <Py_ssize_t> size > view.len:
                self.unpull(v)
                raise MessageTooLarge(f"a message of {size} bytes does not fit in {view.len}",
                                      hint="give a larger buffer; the message is kept")
            for i in range(start, v.n):
                memcpy(<char*> view.buf + at, msg_data(&v.at[i]), msg_size(&v.at[i]))
                at += msg_size(&v.at[i])
            return size
        finally:
            PyBuffer_Release(&view)
            if v != NULL:
                give_vec(self, v)

    def recv_many(self, max=1024, *, timeout=...):
        """Receive up to `max` messages, waiting for the first only. A list of bytes."""
        cdef MsgVec* v
        self.check()
        self.refuse_router()
        at_least_one("max", max)
        v = take_vec(self)
        try:
            self.pull_many(v, max, INT64_MAX, timeout)
            return self.given(v, GIVE_MANY)
        finally:
            give_vec(self, v)

    def recv_batch(self, max=65536, *, max_bytes=8 << 20, timeout=...):
        """Receive up to `max` messages or about `max_bytes` as one Batch (NumPy arrays), waiting
        for the first only."""
        cdef MsgVec* v
        self.check()
        self.refuse_router()
        at_least_one("max", max)
        at_least_one("max_bytes", max_bytes)
        v = take_vec(self)
        try:
            self.pull_many(v, max, max_bytes, timeout)
            return self.given(v, GIVE_BATCH)
        finally:
            give_vec(self, v)

    # -- tries, for the async faces ----------------------------------------------------------------

    cdef int pull_now(self, MsgVec* v, size_t most, int64_t most_bytes) except -1:
        """pull_many() that never waits and makes no exception of it: MQ_OK or MQ_AGAIN."""
        cdef size_t count = 0
        cdef int rc
        if self.n_kept.load() and self.take_kept(v):
            rc = MQ_OK
            most -= 1
            if most and not self.answers:
                most -= self.take_more(v, most)
            if most and not self.answers:
                with nogil:
                    rc = sock_recv_many(self.s, v, most, most_bytes, &count)
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
        if self.level is not None:
            self.settle()
        if rc != MQ_OK and rc != MQ_AGAIN:
            self.fail(rc, False)
        return rc

    def _try_recv(self, int kind, arg=None):
        """What the call would return, or None if it would wait. kind: GIVE_*, or 3: recv_into."""
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
        v = take_vec(self)
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
            return self.given(v, kind)
        finally:
            give_vec(self, v)
