"""SocketHandle: a socket's C half as Python holds it: life, options, how a call waits and fails.

Four classes, each derived from the one before: SocketHandle, SocketInternals (engines, event loops,
closing), SocketSender, SocketCore (receiving), of which mqcore.Socket is made.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t
from libc.string cimport memmove, memset

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport MSG_MORE, Msg, vec_fini, vec_grow, vec_push
from mqcore.base.slab cimport Owner, landing_clear, owner_release, pool_drain_released
from mqcore.base.status cimport (
    MQ_CLOSED, MQ_FAILED, MQ_GONE, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK, MQ_OVER, MQ_STATE,
    MQ_UNSUPPORTED,
)
from mqcore.base.waits cimport locks_back, stay_asleep, yield_locks
from mqcore.binding.arguments cimport loop_runs, seconds_of
from mqcore.binding.message cimport ARENA_TAKEN, message_end
from mqcore.reactor.io_thread cimport io_now
from mqcore.sock.counters cimport undeliver
from mqcore.sock.calls cimport sock_query
from mqcore.sock.events cimport sock_changed, sock_pass
from mqcore.sock.notify cimport rings_end
from mqcore.sock.sock cimport WAIT_TIMEOUT, sock_enter, sock_free, sock_leave, sock_new
from mqcore.sock.wait cimport sock_wait
from mqcore.sock.watch cimport watch_open
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_FANOUT, PAT_GROUPS, PAT_HOPS, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_SINGLE,
    PAT_WORDS, Q_CAN_RECV, Q_CAN_SEND, op_pay, op_raise, op_refuse,
)
from mqcore.spi.pipe cimport DROP_CLOSED, DROP_FULL

import os

from mqcore.base.native import threading
from mqcore.base.virtual import FOREVER

from mqcore.binding.blocking import warn as warn_blocking
from mqcore.binding.arguments import UNSENDABLE

from mqcore.errors import (
    Forked, NoSuchPeer, OptionError, PeerGone, RecvTimeout, SocketClosed, StateError, UsageError,
)

cdef object MAIN = threading.main_thread().ident
cdef object get_ident = threading.get_ident
cdef dict WAITS = None      # of calls that sleep, for MQCORE_DEBUG: thread: (socket, since)


def watch_waits(dict table) -> None:
    """From now on calls that sleep are in this table: thread: (socket, now_ns() of its start)."""
    global WAITS
    WAITS = table


def _forked() -> None:
    """In a child the thread that forked is the main one."""
    global MAIN
    MAIN = get_ident()


os.register_at_fork(after_in_child=_forked)


@cython.no_gc_clear  # __dealloc__ needs the plane: a collected cycle must not clear it first
cdef class SocketHandle:
    def __cinit__(self, *args, **kwargs):
        self.send_ns = -1
        self.recv_ns = -1

    def __dealloc__(self):
        if self.s == NULL or self.plane.forked:
            return
        self.let_go()
        vec_fini(&self.kept)
        rings_end(self.s)
        # an engine or a call inside means that close() never came: leak it rather than pull it away
        if self.s.engines.load() == 0 and self.s.users.load() == 0:
            with nogil:       # it waits for an I/O thread, which may wait for the GIL
                sock_free(self.s)

    cdef void let_go(self) noexcept:
        """The memory that is only kept for speed."""
        cdef Owner* arena = self.arena.load()
        if not self.vec_taken.exchange(1):
            vec_fini(&self.vec)
            self.vec_taken.store(0)
        if arena != <Owner*> ARENA_TAKEN and self.arena.compare_exchange_strong(arena, NULL):
            if arena != NULL:
                owner_release(arena)
        if self.s != NULL:
            landing_clear(&self.s.port.landing)

    # -- messages that were taken and not given ----------------------------------------------------

    cdef int keep(self, MsgVec* v) except -1:
        cdef MsgVec lost
        cdef size_t i
        memset(&lost, 0, sizeof(MsgVec))
        with cython.critical_section(self):
            if self.keeps_none or self.kept.n and vec_grow(v, v.n + self.kept.n):
                lost, v[0] = v[0], lost
            else:             # in front: it was taken before what is there
                for i in range(self.kept.n):
                    vec_push(v, &self.kept.at[i])
                self.kept.n = 0
                self.kept, v[0] = v[0], self.kept
            self.n_kept.store(<uint32_t> self.kept.n)
        if lost.n:
            self.lose(&lost, DROP_CLOSED if self.keeps_none else DROP_FULL)
        return 0

    cdef bint take_kept(self, MsgVec* v) noexcept:
        cdef size_t n = 0
        cdef size_t i
        with cython.critical_section(self):
            if self.kept.n:
                n = message_end(&self.kept, 0)
            if n and n == self.kept.n and v.n == 0:
                self.kept, v[0] = v[0], self.kept
            elif n and v.cap < v.n + n and vec_grow(v, v.n + n):
                n = 0         # no memory: it stays
            elif n:
                for i in range(n):
                    vec_push(v, &self.kept.at[i])
                self.kept.n -= n
                memmove(self.kept.at, self.kept.at + n, self.kept.n * sizeof(Msg))
            self.n_kept.store(<uint32_t> self.kept.n)
        return n != 0

    cdef size_t take_more(self, MsgVec* v, size_t most) noexcept:
        cdef size_t n = 0
        while n < most and self.n_kept.load() and self.take_kept(v):
            n += 1
        return n

    cdef void forgive(self) noexcept:
        """The request has been answered, or another has taken its place."""
        cdef uint32_t owes = OWES_ANSWER
        if self.owes.compare_exchange_strong(owes, OWES_NOTHING):
            sock_changed(self.s)      # a thread that waits for the next request can have it

    cdef int unpull(self, MsgVec* v) except -1:
        """A message was taken but could not be delivered: keep it for the next receive."""
        self.keep(v)
        self.forgive()
        sock_changed(self.s)      # a waiting thread may have space for it
        if self.level is not None:
            self.settle()
        return 0

    cdef int drop_kept(self) except -1:
        """The socket closes: drop the kept messages, which no receive can take any more."""
        cdef MsgVec rest
        memset(&rest, 0, sizeof(MsgVec))
        with cython.critical_section(self):
            self.keeps_none = True
            rest, self.kept = self.kept, rest
            self.n_kept.store(0)
        return self.lose(&rest, DROP_CLOSED)

    cdef int lose(self, MsgVec* v, uint32_t reason) except -1:
        """Counted as delivered, and dropped after all. v is freed."""
        cdef size_t at
        if v.n:
            sock_enter(self.s)
            for at in range(v.n):
                if not v.at[at].flags & MSG_MORE:
                    undeliver(self.s, v.at[at].peer, reason)
            sock_leave(self.s, True)
        vec_fini(v)
        return 0

    # -- the descriptor of fileno() ----------------------------------------------------------------

    @property
    def _level(self):
        with cython.critical_section(self):
            return self.level

    @_level.setter
    def _level(self, level):
        with cython.critical_section(self):
            self.level = level

    cdef int settle(self) except -1:
        cdef object level = self._level
        if level is not None:     # meanwhile another thread may have closed it
            level.settle()
        return 0

    # -- devices -----------------------------------------------------------------------------------

    cdef int claim(self) except -1:
        if self.owned.exchange(1):
            raise UsageError("a device owns this socket", hint="stop the device first")
        sock_changed(self.s)  # calls that wait here fail
        return 0

    cdef void unclaim(self) noexcept:
        self.owned.store(0)

    cdef int open_watch(self) except -2:
        cdef int rc
        with cython.critical_section(self):
            rc = watch_open(self.s)
        return rc

    cdef int check(self) except -1:
        op_refuse()
        if self.plane is None or self.s == NULL:
            self.never()
        if self.plane.forked:
            raise Forked("this socket belongs to the parent process",
                         hint="make a new socket in the child; pass URLs, not sockets")
        if self.s.closing.load():
            stay_asleep()
            raise SocketClosed("the socket is closed")
        if self.owned.load():
            raise UsageError("a device owns this socket", hint="stop the device first")
        if self.plane.plane.pool.released.load() != NULL:
            pool_drain_released(self.plane.plane.pool)
        return 0

    cdef int can(self) except -1:
        return self.can_of(CAN_RECV | CAN_SEND)

    cdef int can_of(self, int wanted) except -1:
        cdef int64_t send = -1
        cdef int bits = 0
        self.check()
        # not while a request waits for its answer: a plain receive would raise
        if wanted & CAN_RECV and self.owes.load() != OWES_ANSWER and (self.n_kept.load() or (
                self.s.flags & PAT_RECV and sock_query(self.s, Q_CAN_RECV, NULL, 0) > 0)):
            bits = CAN_RECV
        if not wanted & CAN_SEND:
            return bits
        if self.s.flags & PAT_SEND:
            send = sock_query(self.s, Q_CAN_SEND, NULL, 0)
        if send > 0 or (
                send == 0 and self.s.connects.load() > 0 and not self.s.immediate
                and self.s.n_pipes.load() == 0
                and self.s.n_waiting.load() < (1 if self.s.strict else self.s.port.send.msgs)):
            bits |= CAN_SEND
        return bits

    cdef int never(self) except -1:
        raise SocketClosed("this socket was never opened",
                           hint="a subclass with a constructor of its own calls super().__init__()")

    cdef int64_t deadline(self, object timeout, int64_t default) except -2:
        """Monotonic ns; -1 for ever; 0: do not wait."""
        cdef double seconds
        if timeout is ...:
            if default <= 0:
                return default
            return io_now(self.plane.plane.ios[0]) + default
        if timeout is None:
            return -1
        seconds = seconds_of(timeout, "timeout")
        if seconds == 0:
            return 0
        if seconds > 4e9:
            return -1
        return io_now(self.plane.plane.ios[0]) + <int64_t> (seconds * 1e9)

    cdef int fail(self, int rc, bint sending) except -1:
        """Raise the exception for a Status other than success and reasons to wait."""
        if rc == MQ_CLOSED or rc == MQ_GONE or rc == MQ_NO_PEER:
            stay_asleep()     # the peer may have been a socket of this program
        if rc == MQ_CLOSED:
            raise SocketClosed("the socket is closed")
        if rc == MQ_STATE:
            if not sending and self.s.flags & PAT_FANOUT:
                raise StateError("there is no survey to wait for", hint="send one first")
            if not sending:
                raise StateError("there is no request to wait for", hint="send a request first")
            if self.answers:
                raise StateError("there is no request to answer", hint="recv() one first")
            raise StateError("the last request has not been answered",
                             hint="recv() first, or make the socket with strict=False")
        if rc == MQ_NO_PEER:
            raise NoSuchPeer("the peer that this message is for is not connected",
                             hint="mandatory=False drops such messages instead, counted"
                             if self.plugin.name == "router" else "peers() are those that are")
        if rc == MQ_OVER:
            raise RecvTimeout("the survey is over: its deadline has passed",
                              hint="send the next one; deadline= gives more time")
        if rc == MQ_GONE:
            raise PeerGone("the peer that owed the answer has left", hint="send the request again")
        if rc == MQ_INVALID:
            raise UsageError(
                "the pattern cannot send this message", hint=UNSENDABLE.get(
                    self.plugin.name, f"a {self.plugin.name}'s messages have one part"
                    if self.s.flags & (PAT_SINGLE | PAT_GROUPS) else "conflate takes one part"))
        if rc == MQ_UNSUPPORTED:
            verb = "send" if sending else "recv"
            raise UsageError(f"a {self.plugin.name} socket cannot {verb}()")
        if rc == MQ_NOMEM:
            raise MemoryError()
        if rc == MQ_FAILED:
            op_raise()
        raise RuntimeError(f"status {rc}")

    cdef int wait(self, uint32_t seen, int64_t deadline, bint taker=False) except -1:
        """Sleep without the GIL; 1: time is up. While it sleeps it is a call inside that close()
        waits for; in a signal's handler it is not, so that a handler may close the socket. A call
        that a handler makes releases the locks of the call that it has interrupted."""
        cdef int verdict
        cdef bint slices = get_ident() == MAIN
        cdef list held = None
        cdef dict waits = WAITS
        if self.plane.stepper is not None:
            return self.step(seen, deadline)
        if loop_runs():
            warn_blocking(self)
        if slices:
            op_pay()
            held = yield_locks()
        self.s.users.fetch_add(1)
        if waits is not None:
            waits[get_ident()] = self, now_ns()
        with nogil:
            verdict = sock_wait(self.s, seen, deadline, slices, taker)
        self.s.users.fetch_sub(1)
        if waits is not None:
            waits.pop(get_ident(), None)
        if slices and taker:
            sock_pass(self.s)     # a signal's handler may take long
        if held is not None:
            locks_back(held)
        PyErr_CheckSignals()
        if slices:
            op_pay()
        if self.plane.forked:
            self.check()
        return verdict == WAIT_TIMEOUT

    cdef int step(self, uint32_t seen, int64_t deadline) except -1:
        """wait(), where no thread but this one runs the context: its time passes meanwhile."""
        cdef int64_t end = deadline if deadline >= 0 else (
            io_now(self.plane.plane.ios[0]) + <int64_t> FOREVER * 1000000000)
        cdef bint more = True
        while more and self.s.change.load() == seen:
            more = self.plane.stepper(end)
            PyErr_CheckSignals()
        if deadline < 0 and not more and self.s.change.load() == seen:
            self.plane.stepper(-1)
        return self.s.change.load() == seen

    # -- for mqcore/api ----------------------------------------------------------------------------

    def _open(self, PlaneCore plane, PatternPlugin plugin, uint32_t number, dict shake, dict marks):
        """Make the socket. shake: pattern, number, peers, routing_id, metadata (encoded), sp,
        publishes. hwms: send_hwm, recv_hwm, send_hwm_bytes, recv_hwm_bytes (None: no limit),
        send_conflate, recv_conflate."""
        cdef Sock* s
        if plane.forked:
            raise Forked("this context belongs to the parent process",
                         hint="make a new one in the child")
        s = sock_new(plane.plane, plugin.ops, number)
        if s == NULL:
            op_raise()
            raise MemoryError()
        self.plane = plane
        self.plugin = plugin
        self.s = s
        self.reflag()
        self.routes = plugin.name in ("router", "stream", "dgram")
        self.groups = s.flags & PAT_GROUPS != 0
        self.chooses = plugin.name in ("sub", "dish")
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
        s.port.shake.sp_peer = shake["sp_peer"]
        s.port.shake.words = s.flags & PAT_WORDS != 0
        s.port.shake.hops = s.flags & PAT_HOPS != 0
        s.host.max_hops = shake["max_hops"]
        s.port.shake.publishes = shake["publishes"]
        s.port.shake.groups = s.flags & PAT_GROUPS != 0
        # libzmq announces it for REQ, DEALER and ROUTER alone, and takes it from any peer
        s.port.shake.announce_id = s.flags & PAT_IDENTITY or s.port.shake.routing_id_size
        s.port.send.msgs = limit(marks["send_hwm"])
        s.port.send.bytes = limit(marks["send_hwm_bytes"])
        s.port.send.conflate = marks["send_conflate"]
        s.port.recv.msgs = limit(marks["recv_hwm"])
        s.port.recv.bytes = limit(marks["recv_hwm_bytes"])
        s.port.recv.conflate = marks["recv_conflate"]
        s.port.most_left.store(INT64_MAX)      # until the option is set
        s.port.most_left_bytes.store(s.port.recv.bytes)
        s.port.most_left_open = marks["left_open"]

    cdef void reflag(self) noexcept:
        """What the pattern promises, as its options leave it."""
        self.s.flags = self.s.ops.flags & ~self.s.host.without
        self.answers = self.s.flags & PAT_EXCHANGE and self.s.ops.send_to != NULL
        if not self.answers:
            self.owes.store(OWES_NOTHING)

    def _set(self, str name, value):
        """send_timeout, recv_timeout (seconds or None), max_unfinished, max_departed, immediate,
        on_full (index), watched, max_hops, held (new peers wait for _admit), chooses (false: a SUB
        or DISH that wants nothing may wait for it); the four HWMs, for peers that connect from now
        on."""
        if name == "send_timeout":
            self.send_ns = -1 if value is None else <int64_t> (value * 1e9)
        elif name == "recv_timeout":
            self.recv_ns = -1 if value is None else <int64_t> (value * 1e9)
        elif name == "chooses":
            self.chooses = value
        elif name == "max_unfinished":
            self.s.port.most_begun.store(limit(value))
        elif name == "max_departed":
            self.s.port.most_left.store(limit(value))
        elif name == "watched":
            self.s.host.watched.store(1 if value else 0)
        else:
            op_refuse()
            sock_enter(self.s)
            try:
                self.set_locked(name, value)
            finally:
                sock_leave(self.s, True)
            sock_changed(self.s)      # a call that waits, or a poller, may go on now

    cdef int set_locked(self, str name, value) except -1:
        """What senders, receivers and engines read with the socket's lock held."""
        if name == "immediate":
            self.s.immediate = value
        elif name == "send_hwm":
            self.s.port.send.msgs = limit(value)
        elif name == "send_hwm_bytes":
            self.s.port.send.bytes = limit(value)
        elif name == "recv_hwm":
            self.s.port.recv.msgs = limit(value)
        elif name == "recv_hwm_bytes":
            self.s.port.recv.bytes = limit(value)
            self.s.port.most_left_bytes.store(self.s.port.recv.bytes)
        elif name == "on_full":
            self.s.on_full = value
        elif name == "held":
            self.s.holds = value
        elif name == "max_hops":
            self.s.host.max_hops = value
        else:
            raise KeyError(name)
        return 0

    def _set_pattern_option(self, str name, value, uint32_t context=0):
        """One of the pattern's own rows; None is -1 and no bytes. False: it has no such option."""
        cdef bytes raw = value.encode() if isinstance(value, str) else \
            value if isinstance(value, bytes) else b""
        cdef int64_t number = 0 if isinstance(value, (bytes, str)) else -1 if value is None else \
            <int64_t> (value * 1e9) if isinstance(value, float) else int(value)
        cdef bytes key = name.encode()
        cdef int rc
        op_refuse()
        sock_enter(self.s)
        self.s.pattern.context = context
        rc = self.s.ops.set_option(self.s.pattern, key, number, <const uint8_t*> <char*> raw,
                                   len(raw))
        self.s.pattern.context = 0
        if name == "strict" and rc == MQ_OK:
            self.s.strict = number != 0
        if name == "raw" and rc == MQ_OK and self.plugin.name in ("respondent", "bus"):
            self.routes = number != 0
        self.reflag()
        sock_leave(self.s, True)
        sock_changed(self.s)
        if rc == MQ_FAILED:
            op_raise()
        if rc == MQ_INVALID:
            raise OptionError(f"{name}={value!r} is not possible here")
        return rc == MQ_OK


cdef int64_t limit(value):
    return INT64_MAX if value is None else value
