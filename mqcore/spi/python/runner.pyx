"""Calls of a pattern class written in Python: see runner.pxd."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memset

from mqcore.base.message cimport (
    MSG_MORE, msg_close, msg_copy, msg_init_copy, vec_clear, vec_fini, vec_push,
)
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_DROPPED, MQ_FAILED, MQ_FULL, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.base.yqueue cimport Chunk, chunk_slots
from mqcore.spi.inbound cimport hand_over, inbound_leave, inbound_next, inbound_turn, take
from mqcore.spi.pattern cimport EV_REFUSED, PAT_FANOUT, op_raised
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_UNEXPECTED, EV_DROPPED, parts_size, pipe_drop_in, pipe_drop_out,
    pipe_has_message, pipe_has_room, pipe_look, pipe_put, pipe_take, pipe_write, vec_cut,
)
from mqcore.spi.python.operation cimport report
from mqcore.spi.python.view cimport Parts

from mqcore.spi.python.view import Drop


@cython.final
@cython.no_gc
cdef class Runner:
    cdef tell_live(self):
        self.live = tuple([peer for peer in self.peers.values() if not (<Peer> peer).gone])
        self.state.n_live = <uint32_t> len(self.live)
        self.me.live = self.live

    # -- peers -------------------------------------------------------------------------------------

    cdef int attach(self, Pipe* pipe) except -1:
        cdef Peer peer = Peer.__new__(Peer)
        peer.pipe = pipe
        peer.owner = &self.state.head
        peer.id = pipe.id
        peer.routing_id = (b"" if pipe.routing_id == NULL else
                           (<const char*> pipe.routing_id)[:pipe.routing_id_size])
        peer.prio = pipe.prio
        peer.connected = pipe.connected != 0
        self.peers[peer.id] = peer
        verdict = None
        try:
            self.tell_live()
            if self.state.asks & ASK_ATTACH:
                verdict = self.me.attach(peer)
            if verdict is None or verdict is True:
                return MQ_OK
            if verdict is not False and not isinstance(verdict, str):
                raise TypeError("attach() gives None, True, False or the reason for a refusal, not "
                                f"{verdict!r}")
        except BaseException:
            self.forget(peer)
            self.quietly("hangup", peer)
            self.quietly("detach", peer)
            raise
        self.forget(peer)
        if verdict and self.state.head.host.watched.load():
            self.emit(EV_REFUSED, pipe, verdict)
        return MQ_STATE

    cdef forget(self, Peer peer):
        self.peers.pop(peer.id, None)
        peer.gone = True
        peer.pipe = NULL
        self.tell_live()

    cdef quietly(self, str method, Peer peer):
        """An attach() that failed half-way: what it may have noted down is taken back."""
        try:
            getattr(self.me, method)(peer)
        except BaseException:
            pass              # only the first failure is reported

    cdef int hangup(self, Pipe* pipe) except -1:
        cdef Peer peer = self.peers.get(pipe.id)
        if peer is None:
            return 0
        peer.gone = True
        self.tell_live()
        if self.state.asks & ASK_HANGUP:
            self.me.hangup(peer)
        return 0

    cdef int detach(self, Pipe* pipe) except -1:
        cdef Peer peer = self.peers.pop(pipe.id, None)
        if peer is None:
            return 0
        peer.gone = True
        peer.pipe = NULL
        self.tell_live()
        if self.state.asks & ASK_DETACH:
            self.me.detach(peer)
        return 0

    cdef Peer mine(self, object choice):
        """The peer that a method chose, or an error that says why it cannot be."""
        cdef Peer peer
        if not isinstance(choice, Peer):
            raise TypeError(f"a Peer was expected, not {choice!r}")
        peer = choice
        if peer.owner != &self.state.head or peer.pipe == NULL:
            raise ValueError(f"{peer} is not a peer of this socket any more")
        return peer

    cdef Parts view(self):
        cdef Parts view = Parts.__new__(Parts)
        view.owner = self.state
        return view

    # -- out ---------------------------------------------------------------------------------------

    cdef int route(self, Msg* parts, size_t n) except -1:
        cdef Parts view = self.view()
        cdef list targets
        view.run = parts
        view.n = n
        try:
            choice = self.me.route(view)
            if choice is None:
                return MQ_FULL if self.state.n_live else MQ_AGAIN
            if isinstance(choice, Peer):
                return self.write(self.mine(choice), parts, n)
            if isinstance(choice, Drop):
                return self.drop_out(choice.number, parts, n)
            targets = [self.mine(peer) for peer in choice]
        finally:
            view.n = 0
        if not self.state.head.ops.flags & PAT_FANOUT:
            raise TypeError("route() gives one Peer, WAIT or a Drop; several peers are for "
                            "patterns with fanout = True")
        return self.spread(targets, parts, n)

    cdef int write(self, Peer peer, Msg* parts, size_t n) except -1:
        if peer.gone:
            raise ValueError(f"{peer}: its connection has ended, it can be written to no more")
        if n > 1 and peer.pipe.out.conflate:
            return MQ_INVALID
        return pipe_write(peer.pipe, parts, n)

    cdef int drop_out(self, uint32_t reason, Msg* parts, size_t n) except -1:
        cdef uint8_t data = <uint8_t> reason
        cdef size_t i
        for i in range(n):
            msg_close(&parts[i])
        self.state.head.host.dropped[reason] += 1
        if not self.state.dropping & 1 << reason and self.state.head.host.watched.load():
            self.state.dropping |= 1 << reason      # the first of a run
            self.state.head.host.emit(self.state.head.host, EV_DROPPED, NULL, &data, 1)
        return MQ_DROPPED

    cdef int spread(self, list targets, Msg* parts, size_t n) except -1:
        """Send each a copy. A peer at its HWM loses it, counted."""
        cdef int64_t size = parts_size(parts, n)
        cdef MsgVec* copy = &self.state.scratch
        cdef Msg m
        cdef Peer peer
        cdef size_t i
        cdef bint some = False
        if n > 1:
            for peer in targets:
                if not peer.gone and peer.pipe.out.conflate:
                    return MQ_INVALID
        vec_clear(copy)
        for i in range(n):    # space for the handles, before anything is written
            msg_copy(&m, &parts[i])
            if vec_push(copy, &m):
                msg_close(&m)
                vec_clear(copy)
                return MQ_NOMEM
        for peer in targets:
            if peer.gone:
                continue
            some = True
            if not pipe_has_room(peer.pipe, size) or pipe_put(peer.pipe, copy.at, n, size):
                pipe_drop_out(peer.pipe, DROP_FULL)
                continue
            for i in range(n):
                msg_copy(&copy.at[i], &parts[i])
        if not some:
            self.state.head.host.unmatched += 1
        vec_clear(copy)
        for i in range(n):
            msg_close(&parts[i])
        return MQ_OK

    cdef bint can_send(self) except -1:
        if self.state.asks & ASK_CAN_SEND:
            return bool(self.me.can_send())
        for peer in self.live:
            if pipe_has_room((<Peer> peer).pipe, 0):
                return True
        return self.state.head.ops.flags & PAT_FANOUT != 0

    # -- in ----------------------------------------------------------------------------------------

    cdef Pipe* source(self) except? NULL:
        """The pipe whose message is next; NULL: none. An exception changes nothing."""
        cdef Pipe* pipe
        if not self.state.asks & ASK_PICK:
            return inbound_next(&self.state.inbound)
        ready = self.ready()
        if not ready:
            return NULL
        choice = self.me.pick(ready)
        if choice is None:
            return NULL
        pipe = self.mine(choice).pipe
        if choice not in ready:
            raise ValueError(f"{choice} has no message now; pick() gives one of those it was given")
        return pipe

    cdef tuple ready(self):
        """The peers that have a message, in turn."""
        cdef list found = []
        cdef uint32_t i = 0
        cdef Inbound* inbound = &self.state.inbound
        while i < inbound.n:
            if pipe_has_message(inbound.at[i]):
                found.append(self.peers[inbound.at[i].id])
                i += 1
            else:
                inbound_leave(inbound, inbound.at[i])
        return tuple(found)

    cdef int receive(self, MsgVec* out, bint look) except -1:
        cdef Pipe* pipe
        cdef int rc
        while True:
            pipe = self.source()
            if pipe == NULL:
                return MQ_AGAIN
            if not self.state.asks & ASK_ACCEPT:
                return MQ_OK if look else take(&self.state.inbound, pipe, out)
            if pipe.inn.conflate:
                if look:
                    return MQ_OK
                rc = self.judged_latest(pipe, out)
            else:
                rc = self.judged(pipe, out, look)
            if rc != MQ_DROPPED:
                return rc

    cdef int judged(self, Pipe* pipe, MsgVec* out, bint look) except -1:
        """One message of this pipe, as accept() will have it. MQ_DROPPED: it would not."""
        cdef Parts view = self.view()
        cdef MsgVec* other = &self.state.scratch
        cdef size_t before = out.n if out != NULL else 0
        cdef int rc
        view.n = self.see(pipe)
        view.each = self.state.seen
        vec_clear(other)
        try:
            verdict = self.me.accept(self.peers[pipe.id], view)
            if not isinstance(verdict, (bool, Drop)):
                self.rewrite(verdict, other)
        finally:
            view.n = 0
        if verdict is True:
            return MQ_OK if look else take(&self.state.inbound, pipe, out)
        if verdict is False or isinstance(verdict, Drop):
            rc = pipe_take(pipe, other)
            if rc == MQ_OK:
                pipe_drop_in(pipe, DROP_UNEXPECTED if verdict is False else verdict.number)
            vec_clear(other)
            return MQ_DROPPED
        if look:
            vec_clear(other)
            return MQ_OK
        rc = pipe_take(pipe, out)
        if rc == MQ_OK:
            vec_cut(out, before)
            rc = hand_over(other, out, pipe)
            inbound_turn(&self.state.inbound, pipe)
        vec_clear(other)
        return rc

    cdef int judged_latest(self, Pipe* pipe, MsgVec* out) except -1:
        """The same where only the newest message is kept: it cannot be looked at and left there,
        so one that accept() raises over is gone, counted."""
        cdef Parts view = self.view()
        cdef MsgVec taken
        cdef MsgVec* other = &self.state.scratch
        cdef uint32_t reason = DROP_UNEXPECTED
        cdef int rc
        memset(&taken, 0, sizeof(MsgVec))
        vec_clear(other)
        rc = pipe_take(pipe, &taken)
        try:
            if rc == MQ_OK:
                rc = MQ_DROPPED
                view.run = taken.at
                view.n = taken.n
                verdict = self.me.accept(self.peers[pipe.id], view)
                if isinstance(verdict, Drop):
                    reason = verdict.number
                elif verdict is not False:
                    if verdict is not True:
                        self.rewrite(verdict, other)
                    rc = hand_over(&taken if verdict is True else other, out, pipe)
        finally:
            view.n = 0
            if rc == MQ_DROPPED:
                pipe_drop_in(pipe, reason)
            vec_fini(&taken)
        return rc

    cdef size_t see(self, Pipe* pipe) except 0:
        """Where the parts of the next message lie. Complete messages only are published."""
        cdef Msg* m = pipe_look(pipe)
        cdef Msg** more
        cdef Chunk* chunk = pipe.inn.q.q.begin_chunk
        cdef uint32_t at = pipe.inn.q.q.begin_pos
        cdef size_t n = 0
        while True:
            if n == self.state.cap_seen:
                more = <Msg**> realloc(self.state.seen, (2 * n + 8) * sizeof(Msg*))
                if more == NULL:
                    raise MemoryError()
                self.state.seen = more
                self.state.cap_seen = 2 * n + 8
            m = chunk_slots(chunk) + at
            self.state.seen[n] = m
            n += 1
            if not m.flags & MSG_MORE:
                return n
            at += 1
            if at == chunk.cap:
                chunk = chunk.next
                at = 0

    cdef int rewrite(self, verdict, MsgVec* to) except -1:
        cdef Msg m
        if not isinstance(verdict, (list, tuple)) or not verdict:
            raise TypeError("accept() gives True, a Drop or a list of parts to deliver instead, "
                            f"not {verdict!r}")
        for part in verdict:
            raw = bytes(part) if isinstance(part, (bytearray, memoryview)) else part
            if not isinstance(raw, bytes):
                raise TypeError(f"a part is bytes, not {type(part).__name__}")
            if msg_init_copy(&m, self.state.head.host.pool,
                             <const uint8_t*> PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)):
                raise MemoryError()
            m.flags = MSG_MORE
            if vec_push(to, &m):
                msg_close(&m)
                raise MemoryError()
        to.at[to.n - 1].flags = 0
        return 0

    # -- the rest ----------------------------------------------------------------------------------

    cdef int set_option(self, const char* name, int64_t number, const uint8_t* data,
                        size_t size) except -1:
        cdef str option = name.decode()
        for row in self.options:
            if row[0] == option:
                break
        else:
            return MQ_UNSUPPORTED
        raw = (<const char*> data)[:size]
        value = {"bool": bool(number), "bytes": raw, "seconds": number / 1e9}.get(row[1], number)
        if row[1] == "text":
            value = raw.decode()
        if number == -1 and row[1] in ("bool", "seconds"):
            value = None
        self.me.set_option(option, value)
        return MQ_OK

    cdef emit(self, uint32_t what, Pipe* pipe, str text):
        cdef bytes raw = text.encode("utf-8", "backslashreplace")
        self.state.head.host.emit(self.state.head.host, what, pipe,
                                  <const uint8_t*> PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))

    cdef int failed(self, object error, str where, bint caller, int later) except -1:
        if caller:
            op_raised(error)
            return MQ_FAILED
        if report(self.state.head.host, error, where, &self.state.failing):
            return later
        return MQ_FAILED
