"""SocketHandle: a socket's C half as Python holds it: its life, its options, its links, its
counters.

What applications call is in core.pyx, which derives from this. The underscored methods are for
mqcore/api and mqcore/control.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport MSG_MORE, Msg, vec_fini, vec_grow, vec_push
from mqcore.base.slab cimport Owner, landing_clear, owner_release, pool_drain_released
from mqcore.base.status cimport (
    MQ_CLOSED, MQ_FAILED, MQ_GONE, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK, MQ_OVER, MQ_STATE,
    MQ_UNSUPPORTED,
)
from mqcore.link.engine cimport (
    E_TERM, Engine, EngineConfig, EngineParts, engine_new, engine_pending, engine_post,
    engine_start,
)
from mqcore.link.pipe cimport Link
from mqcore.link.slots cimport engine_at
from mqcore.reactor.includes cimport sched_yield
from mqcore.reactor.io_thread cimport Watch
from mqcore.sock.inproc cimport sock_join
from mqcore.sock.accounts cimport Snapshot, account_dict, take_snapshot
from mqcore.sock.batching cimport batch_settle
from mqcore.sock.message cimport ARENA_TAKEN, message_end
from mqcore.sock.pipes cimport admit, undeliver
from mqcore.sock.sock cimport (
    CLOSING_ALL, NOTIFIERS, WAIT_TIMEOUT, sock_abandon, sock_changed, sock_close_input,
    sock_drop_all, sock_enter, sock_free, sock_leave, sock_new, sock_outstanding, sock_query,
    sock_subscribe,
)
from mqcore.sock.wait cimport loop_harvest, loop_lead, loop_leave, sock_wait
from mqcore.sock.watch cimport (
    lead_claim, watch_abandon, watch_close, watch_next, watch_now, watch_open,
)
from mqcore.spi.filter_ops cimport filter_chain
from mqcore.spi.message_engine cimport NativeEngine
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_FANOUT, PAT_GROUPS, PAT_HOPS, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_SINGLE,
    PAT_WORDS, Q_CAN_RECV, Q_CAN_SEND, Q_RESENT, op_pay, op_raise, op_refuse,
)
from mqcore.spi.pipe cimport DROP_CLOSED, DROP_FULL, DROP_REASONS, Pipe, pipe_close
from mqcore.wire.codecs cimport codec_find
from mqcore.wire.security cimport NativeSecurity

import os
import sys

from mqcore.base.native import threading

from mqcore.sock.blocking import warn as warn_blocking

from mqcore.errors import (
    Forked, NoSuchPeer, OptionError, PeerGone, RecvTimeout, SocketClosed, StateError, UsageError,
)

cdef object MAIN = threading.main_thread().ident
cdef object get_ident = threading.get_ident


def _forked() -> None:
    """In a child the thread that forked is the main one."""
    global MAIN
    MAIN = get_ident()


os.register_at_fork(after_in_child=_forked)
cdef dict MODULES = sys.modules
# what to do about a message that a pattern cannot send
cdef dict UNSENDABLE = {
    "router": "a routing id comes first: send_to(id, ...)",
    "stream": "a routing id comes first: send_to(id, ...)",
    "server": "send_to(peer, body): one part, and whom it is for",
    "peer": "send_to(peer, body): one part, and whom it is for",
    "dgram": 'two parts: an address like b"192.0.2.1:5555", or b"[::1]:5555", and a body',
}


cdef bint loop_runs() except -1:
    """asyncio or trio runs in this thread. What nobody has imported does not run."""
    cdef object module = MODULES.get("asyncio")
    cdef object look
    if module is not None:
        look = getattr(module, "_get_running_loop", None)   # None: it is being imported now
        if look is not None and look() is not None:
            return True
    module = MODULES.get("trio")
    if module is None:
        return False
    look = getattr(module, "lowlevel", None)
    return look is not None and look.in_trio_run()


cdef Pipe* _pipe_of(Sock* s, uint32_t peer, bint* held) noexcept nogil:
    """The socket's lock is held. held: the peer is kept from the pattern."""
    cdef Pipe* pipe = s.all               # the newest first
    while pipe != NULL and pipe.id != peer:
        pipe = pipe.all_next
    held[0] = pipe == NULL
    if held[0]:
        pipe = s.held
        while pipe != NULL and pipe.id != peer:
            pipe = pipe.all_next
    return pipe


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
            if self.keeps_none or self.kept.n and self.kept.cap - self.kept.n < v.n and vec_grow(
                    &self.kept, self.kept.n + v.n):
                lost, v[0] = v[0], lost
            elif self.kept.n == 0:
                self.kept, v[0] = v[0], self.kept
            else:
                for i in range(v.n):
                    vec_push(&self.kept, &v.at[i])
                v.n = 0
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
            if n and n == self.kept.n:
                self.kept, v[0] = v[0], self.kept
            elif n and v.cap < n and vec_grow(v, n):
                n = 0         # no memory: it stays
            elif n:
                for i in range(n):
                    vec_push(v, &self.kept.at[i])
                self.kept.n -= n
                memmove(self.kept.at, self.kept.at + n, self.kept.n * sizeof(Msg))
            self.n_kept.store(<uint32_t> self.kept.n)
        return n != 0

    cdef int drop_kept(self) except -1:
        """The socket closes: nobody comes for them any more."""
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
            raise SocketClosed("this socket was never opened")
        if self.plane.forked:
            raise Forked("this socket belongs to the parent process",
                         hint="make a new socket in the child; pass URLs, not sockets")
        if self.s.closing.load():
            raise SocketClosed("the socket is closed")
        if self.owned.load():
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

    cdef int wait(self, uint32_t seen, int64_t deadline) except -1:
        """Sleep without the GIL; 1: time is up. While it sleeps it is a call inside that close()
        waits for; in a signal's handler it is not, so that a handler may close the socket."""
        cdef int verdict
        cdef bint slices = get_ident() == MAIN
        if loop_runs():
            warn_blocking(self)
        if slices:
            op_pay()
        self.s.users.fetch_add(1)
        with nogil:
            verdict = sock_wait(self.s, seen, deadline, slices)
        self.s.users.fetch_sub(1)
        PyErr_CheckSignals()
        if slices:
            op_pay()
        if self.plane.forked:
            self.check()
        return verdict == WAIT_TIMEOUT

    # -- for mqcore/api and mqcore/control ---------------------------------------------------------

    def _open(self, PlaneCore plane, PatternPlugin plugin, uint32_t number, dict shake, dict marks):
        """Make the socket. shake: pattern, number, peers, routing_id, metadata (encoded), sp,
        publishes. marks: send_hwm, recv_hwm, send_hwm_bytes, recv_hwm_bytes (None: no limit),
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

    cdef void reflag(self) noexcept:
        """What the pattern promises, as its options leave it."""
        self.s.flags = self.s.ops.flags & ~self.s.host.without
        self.answers = self.s.flags & PAT_EXCHANGE and self.s.ops.send_to != NULL
        if not self.answers:
            self.owes.store(OWES_NOTHING)

    def _set(self, str name, value):
        """send_timeout, recv_timeout (seconds or None), immediate, on_full (index),
        watched, max_hops, held (new peers wait for _admit), chooses (false: a SUB or DISH that
        wants nothing may wait for it); the four marks, for peers that connect from now on."""
        if name == "send_timeout":
            self.send_ns = -1 if value is None else <int64_t> (value * 1e9)
        elif name == "recv_timeout":
            self.recv_ns = -1 if value is None else <int64_t> (value * 1e9)
        elif name == "chooses":
            self.chooses = value
        elif name == "watched":
            self.s.host.watched.store(1 if value else 0)
        else:
            op_refuse()
            sock_enter(self.s)
            try:
                self.set_locked(name, value)
            finally:
                sock_leave(self.s, True)

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
        if rc == MQ_FAILED:
            op_raise()
        if rc == MQ_INVALID:
            raise OptionError(f"{name}={value!r} is not possible here")
        return rc == MQ_OK

    def _adopt(self, int fd, bint connected, int prio, double handshake_timeout, double grace,
               double heartbeat, double heartbeat_timeout, double heartbeat_ttl,
               int64_t max_message_size, str codec, NativeSecurity security,
               list filters, NativeEngine media, bytes left, bytes peer_id):
        """Give a connected non-blocking descriptor to a new engine, which owns it now. Seconds; 0:
        none. `peer_id`: the routing id that the peer goes by; b"": what it says. `filters`:
        sessions whose handshakes are over, the outermost first, and `left` the bytes that came
        behind them; `media` None: a stream. `security` is kept alive by the caller until the
        engine's DOWN note. Returns the engine's slot; an exception leaves
        the descriptor with the caller, and ends the sessions."""
        cdef EngineConfig config
        cdef EngineParts parts
        cdef bytes codec_name = codec.encode()
        cdef Engine* e
        cdef Watch* w
        config.connected = connected
        config.prio = prio
        config.handshake_timeout = <int64_t> (handshake_timeout * 1e9)
        config.grace = <int64_t> (grace * 1e9)
        config.heartbeat = <int64_t> (heartbeat * 1e9)
        config.heartbeat_timeout = <int64_t> (heartbeat_timeout * 1e9)
        config.heartbeat_ttl = <int64_t> (heartbeat_ttl * 1e9)
        config.max_message_size = max_message_size
        parts.codec = codec_find(codec_name)
        if parts.codec == NULL:
            raise UsageError(f"no codec is called {codec!r}", hint="the filter asks for it")
        parts.security = NULL
        if security is not None:
            parts.security = &security.c
        parts.left = <const uint8_t*> <char*> left
        parts.n_left = len(left)
        parts.peer_id = <const uint8_t*> <char*> peer_id
        parts.n_peer_id = len(peer_id)
        if self.s.closing.load() == CLOSING_ALL:     # while it lingers a late connection is welcome
            raise SocketClosed("the socket is closed")
        if self.open_watch() < 0:
            raise OSError("no descriptors left for the socket's poll set")
        parts.filter = filter_chain(filters)
        parts.media = media.engine if media is not None else NULL
        self.s.engines.fetch_add(1)
        w = watch_next(self.s)
        e = engine_new(self.plane.plane, w.io, w, &self.s.port, fd, &config, &parts)
        if e == NULL:
            self.s.engines.fetch_sub(1)
            if parts.filter != NULL:
                parts.filter.ops.fini(parts.filter)
            raise MemoryError()
        if media is not None:
            media.take()
        slot = e.slot
        engine_start(e)
        return slot

    def _end_engine(self, uint32_t slot):
        """Tell an engine of this socket to close its connection."""
        engine_post(engine_at(self.plane.plane, slot), E_TERM)

    def _end_pipe(self, uint32_t peer):
        """The same by peer; False if there is no such peer."""
        cdef Pipe* pipe
        cdef bint held = False
        op_refuse()
        sock_enter(self.s)
        pipe = _pipe_of(self.s, peer, &held)
        if pipe != NULL:
            if held:              # sent away: it shall not come back at once
                (<Link*> pipe.link).refused = 1
            pipe_close(pipe)
        sock_leave(self.s, True)
        return pipe != NULL

    def _has_pipe(self, uint32_t peer):
        """The pattern has met this peer, and not refused it; or the peer is held from it."""
        cdef bint held = False
        cdef bint found
        op_refuse()
        sock_enter(self.s)
        found = _pipe_of(self.s, peer, &held) != NULL
        sock_leave(self.s, True)
        return found

    def _admit(self, uint32_t peer):
        """The pattern may have this peer, which `held` kept from it. False: nobody is held so."""
        cdef bint found
        op_refuse()
        sock_enter(self.s)
        found = admit(self.s, peer)
        sock_leave(self.s, True)
        if found:
            sock_changed(self.s)
        return found

    def _unacked(self, uint32_t slot):
        return engine_pending(engine_at(self.plane.plane, slot))

    def _join(self, SocketHandle other, int prio, int other_prio):
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
        rc = sock_subscribe(self.s, 0, <const uint8_t*> <char*> topic, len(topic), on)
        if rc != MQ_OK:
            self.fail(rc, True)

    def _abandon(self):
        self.check()
        sock_abandon(self.s, 0)

    def _query(self, int what, bytes data=b""):
        cdef int64_t answer
        op_refuse()
        if self.s == NULL or self.plane.forked:
            self.check()
        answer = sock_query(self.s, what, <const uint8_t*> <char*> data, len(data))
        return answer

    def _can(self):
        """(recv would not wait, send would not wait), exact now."""
        cdef int bits = self.can()
        return bits & CAN_RECV != 0, bits & CAN_SEND != 0

    cdef int can(self) except -1:
        cdef int64_t send = -1
        cdef int bits = 0
        self.check()
        if self.n_kept.load() or (
                self.s.flags & PAT_RECV and sock_query(self.s, Q_CAN_RECV, NULL, 0) > 0):
            bits = CAN_RECV
        if self.s.flags & PAT_SEND:
            send = sock_query(self.s, Q_CAN_SEND, NULL, 0)
        if send > 0 or (
                send == 0 and self.s.connects.load() > 0 and not self.s.immediate
                and self.s.n_pipes.load() == 0
                and self.s.n_waiting.load() < (1 if self.s.strict else self.s.port.send.msgs)):
            bits |= CAN_SEND
        return bits

    def _attached(self):
        """How many peers the pattern has now: handshaken and not refused."""
        return 0 if self.s == NULL else self.s.n_pipes.load()

    def _change(self):
        return self.s.change.load()

    def _wait(self, uint32_t seen, timeout):
        """Sleep until something changes after `seen`. False: time is up."""
        cdef int64_t deadline = self.deadline(timeout, -1)
        if deadline == 0:
            return self.s.change.load() != seen
        return not self.wait(seen, deadline)

    def _notify_changed(self):
        sock_changed(self.s)

    def _add_notifier(self, int fd):
        """Watch this eventfd's arming; returns its place. It is written once per _arm()."""
        cdef int i
        cdef int place = -1
        op_refuse()
        sock_enter(self.s)
        for i in range(NOTIFIERS):
            if self.s.notifiers[i].fd < 0:
                self.s.notifiers[i].fd = fd
                place = i
                break
        sock_leave(self.s, True)
        if place < 0:
            raise UsageError(f"more than {NOTIFIERS} loops and pollers wait on one socket")
        self.s.notified.fetch_add(1)
        lead_claim(self.s)
        return place

    def _remove_notifier(self, int place):
        op_refuse()
        if self.plane.forked:
            return
        loop_leave(self.s, place)
        sock_enter(self.s)
        self.s.notifiers[place].armed.exchange(0)
        while self.s.notifiers[place].busy.load():   # a thread is about to write it, or has just
            sched_yield()
        self.s.notifiers[place].fd = -1
        self.s.notified.fetch_sub(1)
        sock_leave(self.s, True)

    def _arm(self, int place):
        """From now on the next change writes the eventfd. Look again after arming."""
        self.s.notifiers[place].armed.exchange(1)
        batch_settle(self.s)
        watch_now(self.s)

    def _doze(self, int place, uint32_t seen):
        """_arm() for a loop with tasks that wait. 0: something changed after `seen`; 1: sleep; 2:
        sleep, and lead: call _harvest() whenever _descriptor() is readable."""
        self.s.notifiers[place].armed.exchange(1)
        if self.s.change.load() != seen:
            return 0
        if not self.plane.forked:
            batch_settle(self.s)
            if loop_lead(self.s, place):
                return 2
            watch_now(self.s)
        return 1

    def _harvest(self, int place):
        """False: the loop that waits at this place does not lead. It is not armed afterwards."""
        return not self.plane.forked and loop_harvest(self.s, place)

    def _readable(self):
        """A receive would find something."""
        op_refuse()
        return self.n_kept.load() > 0 or sock_query(self.s, Q_CAN_RECV, NULL, 0) > 0

    @property
    def _in_line(self):
        """Any message is for whoever receives next: tasks that wait may stand in line."""
        return not self.answers and not self.s.flags & PAT_EXCHANGE

    def _leave(self, int place):
        """No task of this loop waits any more."""
        if not self.plane.forked:
            loop_leave(self.s, place)

    def _leader(self):
        """Who runs what the socket's set harvests: 0 the I/O thread, 1 a thread that waits, else a
        loop."""
        return self.s.lead.load()

    def _descriptor(self):
        """The socket's poll set, for a loop that leads to watch."""
        return self.s.plane.poller.descriptor(self.s.set)

    @property
    def closed(self):
        return self.s == NULL or self.plane.forked or self.s.closing.load() != 0

    def _close_input(self):
        """First step of closing: calls fail, waiters wake. False if it was done before."""
        cdef bint first
        op_refuse()
        first = sock_close_input(self.s)
        lead_claim(self.s)    # a loop that is blocked in close() would not let anything out
        return first

    def _outstanding(self):
        """Messages taken from the application that no kernel or peer has yet."""
        op_refuse()
        return sock_outstanding(self.s)

    def _drop_all(self):
        """Last step: what is left is counted as dropped, pipes and engines are told to end."""
        op_refuse()
        self.drop_kept()
        sock_drop_all(self.s)
        self.let_go()

    def _close_descriptors(self):
        """In a forked child: the poll set and its eventfd, untouched otherwise."""
        if self.s != NULL and self.s.watching.load():
            watch_abandon(self.s)

    def _settled(self):
        """True when no engine, no link and no call is left inside."""
        op_refuse()
        sock_enter(self.s)
        sock_leave(self.s, True)
        return self.s.engines.load() == 0 and self.s.users.load() == 0

    def _unwatch(self):
        """Closed and settled: a socket object that is kept holds no descriptor."""
        with nogil:
            watch_close(self.s)

    def _loads(self):
        """Connections by I/O thread."""
        cdef uint32_t i
        if not self.s.watching.load():
            return []
        return [self.s.watches[i].load.load() for i in range(self.s.n_watches)]

    def _watched_by(self):
        """"io thread", "callers" who come and go, or a "leader" who sleeps."""
        return ("io thread", "callers", "leader")[self.s.watch_state.load()]

    def _unemitted(self):
        """Events of the pattern that were not told: too many waited for the control thread."""
        return self.s.unemitted

    def _accounts(self):
        """Everything countable, in one look: dict(sent, received, waiting, unmatched, dropped,
        live: [(peer, facts)], ended: [...], total). facts: see account_dict."""
        cdef Snapshot shot
        cdef size_t i
        cdef int reason
        op_refuse()
        with nogil:
            take_snapshot(self.s, &shot)
        try:
            if shot.at == NULL and shot.n:
                raise MemoryError()
            return {
                "sent": shot.sent, "received": shot.received, "waiting": shot.waiting,
                "unmatched": shot.unmatched, "resent": max(0, self._query(Q_RESENT)),
                "dropped": [shot.dropped[reason] for reason in range(DROP_REASONS)],
                "live": [(shot.at[i].id, account_dict(&shot.at[i])) for i in range(shot.live)],
                "ended": [(shot.at[i].id, account_dict(&shot.at[i]))
                          for i in range(shot.live, shot.n)],
                "total": account_dict(&shot.total), "batching": shot.batching,
            }
        finally:
            free(shot.at)


cdef int64_t limit(value):
    return INT64_MAX if value is None else value
