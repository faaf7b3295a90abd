"""SocketInternals: what mqcore/api and mqcore/control do with a socket: engines and peers, event
loops that wait for it, closing, counters. All of it is underscored.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free

from mqcore.base.histogram cimport BUCKETS, Histogram
from mqcore.base.status cimport MQ_OK
from mqcore.link.engine cimport (
    Engine, EngineConfig, EngineParts, engine_new, engine_pending, engine_start, port_crowded,
)
from mqcore.link.lease cimport (
    E_LEAVE, E_TERM, ENGINE_DRAINING, ENGINE_HANDSHAKE, ENGINE_READING, engine_post,
)
from mqcore.link.pipe cimport PIPE_SHUT, Link
from mqcore.link.slots cimport engine_at
from mqcore.reactor.io_thread cimport Watch
from mqcore.binding.handle cimport CAN_RECV, CAN_SEND
from mqcore.sock.inproc cimport sock_join
from mqcore.binding.accounts cimport Snapshot, account_dict, take_snapshot
from mqcore.sock.batching cimport batch_settle
from mqcore.sock.notify cimport arm, disarm
from mqcore.sock.departed cimport departed_full
from mqcore.sock.pipes cimport admit, dismiss, pipe_in, pipe_of
from mqcore.sock.calls cimport (
    sock_abandon, sock_close_input, sock_drop_all, sock_outstanding, sock_query, sock_subscribe,
)
from mqcore.sock.events cimport sock_changed
from mqcore.sock.sock cimport CLOSING_ALL, NOTIFIER_FREE, NOTIFIERS, sock_enter, sock_leave
from mqcore.sock.wait cimport loop_harvest, loop_lead, loop_leave
from mqcore.sock.watch cimport (
    WATCH_LED, lead_claim, watch_abandon, watch_beside, watch_close, watch_next,
)
from mqcore.spi.filter_chain cimport filter_chain
from mqcore.spi.message_engine cimport NativeEngine
from mqcore.spi.pattern cimport PAT_EXCHANGE, Q_CAN_RECV, Q_RESENT, op_refuse
from mqcore.spi.pipe cimport DROP_REASONS, Pipe, pipe_close
from mqcore.wire.codecs cimport codec_find
from mqcore.wire.zmtp.security cimport NativeSecurity

import errno
import os

from mqcore.errors import SocketClosed, UsageError


@cython.no_gc_clear
cdef class SocketInternals(SocketHandle):
    # -- engines and peers -------------------------------------------------------------------------

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

    def _leave_engine(self, uint32_t slot):
        """Tell it to close its connection once what has arrived has been read."""
        engine_post(engine_at(self.plane.plane, slot), E_LEAVE)

    def _reads_on(self, uint32_t slot):
        """Whether it has left its peer and waits for space for what has arrived."""
        cdef Engine* e = engine_at(self.plane.plane, slot)
        return e.state == ENGINE_READING and e.returned and e.in_blocked

    def _has_caught_up(self, uint32_t slot):
        """Whether it waits for space, or for the peer's end: it has read what had arrived when it
        left."""
        cdef Engine* e = engine_at(self.plane.plane, slot)
        return e.state == ENGINE_HANDSHAKE and e.leaves or e.state == ENGINE_DRAINING or (
            e.state == ENGINE_READING and e.returned and (e.in_blocked or e.caught_up))

    def _end_pipe(self, uint32_t peer):
        """The same by peer. False if the peer is unknown."""
        cdef Pipe* pipe
        cdef bint held = False
        op_refuse()
        sock_enter(self.s)
        pipe = pipe_of(self.s, peer, &held)
        if pipe != NULL:
            if held:              # sent away: it shall not come back at once
                (<Link*> pipe.link).refused = 1
                dismiss(self.s, pipe)
            else:
                pipe_close(pipe)
        sock_leave(self.s, True)
        return pipe != NULL

    def _has_pipe(self, uint32_t peer):
        """The pattern has met this peer, and not refused it; or the peer is held from it."""
        cdef bint held = False
        cdef bint found
        op_refuse()
        sock_enter(self.s)
        found = pipe_of(self.s, peer, &held) != NULL
        sock_leave(self.s, True)
        return found

    def _is_hung(self, uint32_t peer):
        """Whether this peer has left, and messages of it are unread, here or in the kernel."""
        cdef Pipe* pipe
        cdef bint found
        op_refuse()
        sock_enter(self.s)
        pipe = pipe_in(self.s.all, peer)
        found = pipe != NULL and pipe.state == PIPE_SHUT or pipe_in(self.s.hung, peer) != NULL
        sock_leave(self.s, True)
        return found

    def _admit(self, uint32_t peer):
        """Give the pattern this peer, which `held` kept back. False: no such peer is held."""
        cdef bint found
        op_refuse()
        sock_enter(self.s)
        found = admit(self.s, peer)
        sock_leave(self.s, True)
        if found:
            sock_changed(self.s)
        return found

    def _departed_full(self):
        """Whether departed peers have left as much unread as they may, so that a listener must wait
        with its next accept. NOTE_ROOM follows."""
        return self.s != NULL and departed_full(self.s)

    def _crowded(self):
        """The same without a note."""
        return self.s != NULL and port_crowded(&self.s.port)

    def _unacked(self, uint32_t slot, bint last):
        return engine_pending(engine_at(self.plane.plane, slot), last)

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
        sock_changed(self.s)

    def _query(self, int what, bytes data=b""):
        cdef int64_t answer
        op_refuse()
        if self.s == NULL or self.plane.forked:
            self.check()
        answer = sock_query(self.s, what, <const uint8_t*> <char*> data, len(data))
        return answer

    def _look_beside(self):
        """A look that does not wait found nothing, see looked_in_vain()."""
        self.check()
        if self.s.watch_state.load() == WATCH_LED and not self.s.lead.load():
            watch_beside(self.s)

    def _can(self):
        """(recv would not wait, send would not wait), exact now."""
        cdef int bits = self.can()
        return bits & CAN_RECV != 0, bits & CAN_SEND != 0

    # -- waiting -----------------------------------------------------------------------------------

    def _attached(self):
        """How many peers the pattern has now: handshaken and not refused."""
        return 0 if self.s == NULL else self.s.n_pipes.load()

    def _change(self):
        if self.s == NULL:
            self.never()
        return self.s.change.load()

    def _wait(self, uint32_t seen, timeout):
        """Sleep until something changes after `seen`. False: time is up."""
        if self.s == NULL:
            self.never()
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
        if self.s == NULL:
            self.never()
        if self.plane.forked:         # a thread of the parent may hold the lock
            self.check()
        sock_enter(self.s)
        for i in range(NOTIFIERS):
            if self.s.notifiers[i].fd == NOTIFIER_FREE:
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
        disarm(self.s, place)
        self.s.notifiers[place].fd = NOTIFIER_FREE
        self.s.notified.fetch_sub(1)
        sock_leave(self.s, True)

    def _arm(self, int place):
        """From now on the next change writes the eventfd. Look again after arming."""
        arm(self.s, place)
        if not self.plane.forked:
            batch_settle(self.plane.plane)
            watch_beside(self.s)

    def _doze(self, int place, uint32_t seen):
        """_arm() for a loop with tasks that wait. 0: something changed after `seen`; 1: sleep; 2:
        sleep, and lead: call _harvest() whenever _descriptor() is readable."""
        cdef bint leads
        arm(self.s, place)
        if self.s.change.load() != seen:
            return 0
        if not self.plane.forked:
            batch_settle(self.plane.plane)
            self.s.users.fetch_add(1)    # the sets stay
            leads = loop_lead(self.s, place)
            self.s.users.fetch_sub(1)
            if leads:
                return 2
            watch_beside(self.s)
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
        """Any message is for the next receiver, so waiting tasks may queue."""
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
        """A copy of the poll set's descriptor, for a loop that leads; the caller closes it."""
        self.s.users.fetch_add(1)        # the set stays
        try:
            if self.s.closing.load():
                raise OSError(errno.EBADF, "the socket is closed")
            return os.dup(self.s.plane.poller.descriptor(self.s.set))
        finally:
            self.s.users.fetch_sub(1)

    # -- closing -----------------------------------------------------------------------------------

    @property
    def closed(self):
        return self.s == NULL or self.plane.forked or self.s.closing.load() != 0

    def _close_input(self):
        """First step of closing: calls fail, waiters wake. False if it was done before."""
        op_refuse()
        first = sock_close_input(self.s)
        lead_claim(self.s)    # a loop that is blocked in close() would not let anything out
        return first

    def _latencies(self):
        """[(sum in ns, {bucket: count} of those that are not empty)] of sent, received, round_trip;
        None: not measured."""
        cdef Histogram* h = <Histogram*> self.s.port.latencies
        cdef uint32_t i
        cdef int64_t n
        op_refuse()
        if h == NULL:
            return None
        found = []
        for _ in range(3):
            counts = {}
            for i in range(BUCKETS):
                n = h.counts[i].load()
                if n:
                    counts[i] = n
            found.append((h.sum.load(), counts))
            h += 1
        return found

    def _outstanding(self):
        """Messages taken from the application that no kernel or peer has yet."""
        op_refuse()
        return sock_outstanding(self.s)

    def _drop_all(self):
        """Last step: count the remaining messages as dropped and end pipes and engines."""
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

    # -- counters ----------------------------------------------------------------------------------

    def _loads(self):
        """Connections by I/O thread."""
        cdef uint32_t i
        if not self.s.watching.load():
            return []
        return [self.s.watches[i].load.load() for i in range(self.s.n_watches)]

    def _watched_by(self):
        """"io thread", "callers" who come and go, or a "leader" who sleeps."""
        return ("io thread", "callers", "leader")[self.s.watch_state.load()]

    def _begun(self):
        """Bytes of messages that have begun to arrive, as they count for max_unfinished."""
        return self.s.port.begun.load()

    def _unemitted(self):
        """Events of the pattern that were not told: too many waited for the control thread."""
        return self.s.unemitted

    def _accounts(self):
        """Everything countable, in one look: dict(sent, received, waiting, unmatched, dropped,
        live: [(peer, facts)], ended: [...], total, left: the sum of those in `live` that have
        departed, left_peers: how many, left_dropped). facts: see account_dict."""
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
                "left": account_dict(&shot.left), "left_peers": shot.left_peers,
                "left_dropped": shot.left_dropped,
            }
        finally:
            free(shot.at)
