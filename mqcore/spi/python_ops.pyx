"""Patterns written as one Python class: see python_ops.pxd. Order in this file: the runner that
asks the class, taking and leaving the GIL, the ops table, the plug-in."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_copy, msg_init_copy, vec_clear, vec_fini, vec_push,
)
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_DROPPED, MQ_FAILED, MQ_FULL, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK, MQ_STATE,
    MQ_UNSUPPORTED,
)
from mqcore.base.yqueue cimport Chunk, chunk_slots
from mqcore.spi.inbound cimport (
    Inbound, hand_over, inbound_join, inbound_leave, inbound_next, inbound_turn, take,
)
from mqcore.spi.interpreter cimport PyGC_Disable, PyGC_Enable, finalizing
from mqcore.spi.pattern cimport (
    EV_FAILED, EV_REFUSED, PAT_EXCLUSIVE, PAT_FANOUT, PAT_IDENTITY, PAT_RECV, PAT_REROUTE, PAT_SEND,
    PAT_SERVICE, PAT_WAITS, PATTERN_ABI, Pattern, PatternOps, PatternPlugin, Q_CAN_RECV, Q_CAN_SEND,
    op_begin, op_end, op_owe, op_raised, plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_UNEXPECTED, EV_DROPPED, Pipe, parts_size, pipe_discard, pipe_drop_in,
    pipe_drop_out, pipe_has_message, pipe_has_room, pipe_look, pipe_put, pipe_take, pipe_write,
    vec_cut,
)
from mqcore.spi.python_view cimport Parts, Peer

import os

from mqcore.base.native import threading

from mqcore.errors import OptionError
from mqcore.spi.python_view import Drop

cdef object MAIN = threading.main_thread().ident
cdef object get_ident = threading.get_ident


def _forked() -> None:
    """In a child the thread that forked is the main one."""
    global MAIN
    MAIN = get_ident()


os.register_at_fork(after_in_child=_forked)


cdef class Table


# -- asking the class ------------------------------------------------------------------------------

@cython.final
@cython.no_gc
cdef class Runner:
    """One a socket. Nothing here waits or calls a socket; whatever runs Python comes before the
    first change."""
    cdef PyState* state
    cdef Table table
    cdef object me            # the class's instance
    cdef dict peers           # by id
    cdef tuple live

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
            pass              # the first failure is the one that is told

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

    # -- out ---------------------------------------------------------------------------------------

    cdef int route(self, Msg* parts, size_t n) except -1:
        cdef Parts view = Parts.__new__(Parts)
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
        """A copy to each; who is at its mark loses it, counted."""
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
        for i in range(n):    # room for the handles, before anything is written
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
        """Whose message is next; NULL: nobody's. An exception leaves everything as it is."""
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
        """recv, and with `look` whether it would give a message; what accept() throws away on the
        way is thrown away."""
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
        cdef Parts view = Parts.__new__(Parts)
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
        cdef Parts view = Parts.__new__(Parts)
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
        for row in self.table.cls.options:
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
        """What the class raised finds its way; the Status that the operation ends with. `caller`:
        the status reaches one who sends or receives. `later`: says that nothing was taken."""
        if caller:
            op_raised(error)
            return MQ_FAILED
        if not isinstance(error, Exception) and get_ident() == MAIN:
            op_owe(error)
            return later
        if not self.state.failing:
            self.state.failing = 1
            self.emit(EV_FAILED, NULL, described(error, where))
        return MQ_FAILED


cdef str described(object error, str where):
    cdef object trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    text = f"{where}() raised {type(error).__name__}: {error}"
    if trace is not None:
        text += f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
    return text


# -- taking the GIL --------------------------------------------------------------------------------

# Its critical section guards the next two: without a GIL, operations of different sockets begin and
# end at the same moment.
cdef object GATE = []
cdef int RUNNING              # operations, of all sockets
cdef int COLLECTING           # cyclic collection was on when the first of them began


cdef void enter(Inside* inside, void* owner):
    global RUNNING, COLLECTING
    PyErr_Fetch(&inside.kind, &inside.value, &inside.trace)
    inside.before = op_begin(owner)
    with cython.critical_section(GATE):
        if RUNNING == 0:
            COLLECTING = PyGC_Disable()
        RUNNING += 1


cdef void leave(Inside* inside):
    global RUNNING
    with cython.critical_section(GATE):
        RUNNING -= 1
        if RUNNING == 0 and COLLECTING:
            PyGC_Enable()
    op_end(inside.before)
    PyErr_Restore(inside.kind, inside.value, inside.trace)


cdef inline Runner runner_of(PyState* st):
    return <Runner> st.runner


cdef int gil_init(PyState* st) noexcept with gil:
    cdef Table table = <Table> (<ClassOps*> st.head.ops).table
    cdef Runner runner = Runner.__new__(Runner)
    try:
        runner.state = st
        runner.table = table
        runner.peers = {}
        runner.live = ()
        runner.me = table.cls()
        runner.me.live = ()
    except BaseException as error:
        op_raised(error)
        return MQ_FAILED
    Py_INCREF(runner)
    st.runner = <PyObject*> runner
    return MQ_OK


cdef void gil_fini(PyState* st) noexcept with gil:
    Py_XDECREF(st.runner)
    st.runner = NULL


cdef int gil_set_option(PyState* st, const char* name, int64_t number, const uint8_t* data,
                        size_t size) noexcept with gil:
    cdef Inside inside
    cdef int rc
    enter(&inside, st)
    rc = try_set_option(runner_of(st), name, number, data, size)
    leave(&inside)
    return rc


cdef int try_set_option(Runner r, const char* name, int64_t number, const uint8_t* data,
                        size_t size) noexcept:
    try:
        return r.set_option(name, number, data, size)
    except (ValueError, OptionError):
        return MQ_INVALID
    except BaseException as error:
        return r.failed(error, "set_option", True, MQ_INVALID)


cdef int gil_attach(PyState* st, Pipe* pipe) noexcept with gil:
    cdef Inside inside
    cdef int rc
    enter(&inside, st)
    rc = try_attach(runner_of(st), pipe)
    leave(&inside)
    return rc


cdef int try_attach(Runner r, Pipe* pipe) noexcept:
    try:
        return r.attach(pipe)
    except BaseException as error:
        return r.failed(error, "attach", False, MQ_STATE)


cdef void gil_hangup(PyState* st, Pipe* pipe, bint detach) noexcept with gil:
    cdef Inside inside
    enter(&inside, st)
    if try_hangup(runner_of(st), pipe, detach) == MQ_AGAIN:
        try_hangup(runner_of(st), pipe, detach)     # a signal broke in: once more
    leave(&inside)


cdef int try_hangup(Runner r, Pipe* pipe, bint detach) noexcept:
    cdef Peer peer = r.peers.get(pipe.id)
    try:
        if detach:
            return r.detach(pipe)
        return r.hangup(pipe)
    except BaseException as error:
        if detach and peer is not None and not isinstance(error, Exception):
            r.peers[pipe.id] = peer
            peer.pipe = pipe
        return r.failed(error, "detach" if detach else "hangup", False, MQ_AGAIN)


cdef int gil_send(PyState* st, Msg* parts, size_t n) noexcept with gil:
    cdef Inside inside
    cdef int rc
    enter(&inside, st)
    rc = try_send(runner_of(st), parts, n)
    leave(&inside)
    return rc


cdef int try_send(Runner r, Msg* parts, size_t n) noexcept:
    cdef int rc
    try:
        rc = r.route(parts, n)
    except BaseException as error:
        return r.failed(error, "route", not r.state.head.host.pumping,
                        MQ_FULL if r.state.n_live else MQ_AGAIN)
    r.state.failing = 0
    if rc == MQ_OK:
        r.state.dropping = 0
    return rc


cdef int gil_recv(PyState* st, MsgVec* out, bint look) noexcept with gil:
    cdef Inside inside
    cdef int rc
    enter(&inside, st)
    rc = try_recv(runner_of(st), out, look)
    leave(&inside)
    return rc


cdef int try_recv(Runner r, MsgVec* out, bint look) noexcept:
    try:
        return r.receive(out, look)
    except BaseException as error:
        vec_clear(&r.state.scratch)
        if look:
            return MQ_OK      # recv() will raise it
        return r.failed(error, "pick or accept", True, MQ_AGAIN)


cdef int gil_send_to(PyState* st, uint32_t number, Msg* parts, size_t n) noexcept with gil:
    cdef Inside inside
    cdef Peer peer
    cdef int rc = MQ_NO_PEER
    enter(&inside, st)
    peer = runner_of(st).peers.get(number)
    if peer is not None and not peer.gone:
        rc = MQ_INVALID if n > 1 and peer.pipe.out.conflate else pipe_write(peer.pipe, parts, n)
    peer = None
    leave(&inside)
    return rc


cdef int gil_can_send(PyState* st) noexcept with gil:
    cdef Inside inside
    cdef int rc
    enter(&inside, st)
    rc = try_can_send(runner_of(st))
    leave(&inside)
    return rc


cdef int try_can_send(Runner r) noexcept:
    try:
        return r.can_send()
    except BaseException as error:
        r.failed(error, "can_send", False, 1)
        return 1              # send() will find out


# -- the table -------------------------------------------------------------------------------------

cdef int py_init(Pattern* self) noexcept nogil:
    cdef PyState* st = <PyState*> self
    st.asks = (<ClassOps*> self.ops).asks
    return gil_init(st)


cdef void py_fini(Pattern* self) noexcept nogil:
    cdef PyState* st = <PyState*> self
    gil_fini(st)
    free(st.inbound.at)
    free(st.seen)
    vec_fini(&st.scratch)


cdef int py_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                       size_t size) noexcept nogil:
    return gil_set_option(<PyState*> self, name, number, data, size)


cdef int py_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef PyState* st = <PyState*> self
    cdef int rc
    if finalizing() or inbound_join(&st.inbound):
        return MQ_STATE
    pipe.in_at = -1
    rc = gil_attach(st, pipe)
    if rc != MQ_OK:
        st.inbound.members -= 1
    return rc


cdef void py_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    if not finalizing():
        gil_hangup(<PyState*> self, pipe, False)


cdef void py_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef PyState* st = <PyState*> self
    inbound_leave(&st.inbound, pipe)
    st.inbound.members -= 1
    if not finalizing():
        gil_hangup(st, pipe, True)


cdef void py_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef PyState* st = <PyState*> self
    if not self.ops.flags & PAT_RECV:
        pipe_discard(pipe, &st.scratch, DROP_UNEXPECTED)
    elif pipe.in_at < 0:
        inbound_turn(&st.inbound, pipe)


cdef void py_writable(Pattern* self, Pipe* pipe) noexcept nogil:
    pass                      # the next send asks again


cdef int py_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    if not self.ops.flags & PAT_SEND:
        return MQ_UNSUPPORTED
    return MQ_AGAIN if finalizing() else gil_send(<PyState*> self, parts, n)


cdef int py_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef PyState* st = <PyState*> self
    cdef Pipe* pipe
    if not self.ops.flags & PAT_RECV:
        return MQ_UNSUPPORTED
    if st.asks & (ASK_PICK | ASK_ACCEPT):
        return MQ_AGAIN if finalizing() else gil_recv(st, out, False)
    pipe = inbound_next(&st.inbound)
    return MQ_AGAIN if pipe == NULL else take(&st.inbound, pipe, out)


cdef int py_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    return MQ_AGAIN if finalizing() else gil_send_to(<PyState*> self, peer, parts, n)


cdef int64_t py_query(Pattern* self, uint32_t what, const uint8_t* data,
                      size_t size) noexcept nogil:
    cdef PyState* st = <PyState*> self
    if what == Q_CAN_SEND:
        return self.ops.flags & PAT_SEND and not finalizing() and gil_can_send(st)
    if what != Q_CAN_RECV:
        return -1
    if not self.ops.flags & PAT_RECV:
        return 0
    if st.asks & (ASK_PICK | ASK_ACCEPT):
        return not finalizing() and gil_recv(st, NULL, True) == MQ_OK
    return inbound_next(&st.inbound) != NULL


# -- the plug-in -----------------------------------------------------------------------------------

cdef class Table:
    """The ops table of one class. What sockets point to lies in it: their plug-in keeps it."""
    cdef ClassOps c
    cdef object cls

    def __cinit__(self, cls):
        cdef PatternOps* ops = &self.c.ops
        self.cls = cls
        self.c.table = <PyObject*> self
        self.c.asks = asked(cls)
        ops.abi = PATTERN_ABI
        ops.size = sizeof(PyState)
        ops.flags = flags_of(cls)
        ops.init = py_init
        ops.fini = py_fini
        ops.set_option = py_set_option
        ops.attach = py_attach
        ops.detach = py_detach
        ops.hangup = py_hangup
        ops.readable = py_readable
        ops.writable = py_writable
        ops.send = py_send
        ops.recv = py_recv
        ops.query = py_query
        if cls.replies:
            ops.send_to = py_send_to


cdef uint32_t flags_of(cls) except? 0:
    cdef uint32_t flags = 0
    for name, flag in (("sends", PAT_SEND), ("receives", PAT_RECV), ("waits", PAT_WAITS),
                       ("reroutes", PAT_REROUTE), ("identity", PAT_IDENTITY),
                       ("fanout", PAT_FANOUT), ("exclusive", PAT_EXCLUSIVE)):
        if getattr(cls, name):
            flags |= flag
    return flags if flags & PAT_RECV else flags | PAT_SERVICE


cdef uint32_t asked(cls):
    from mqcore.spi.python_pattern import Pattern as Base

    cdef uint32_t asks = 0
    for name, ask in (("attach", ASK_ATTACH), ("hangup", ASK_HANGUP), ("detach", ASK_DETACH),
                      ("pick", ASK_PICK), ("accept", ASK_ACCEPT), ("can_send", ASK_CAN_SEND)):
        if getattr(cls, name) is not getattr(Base, name):
            asks |= ask
    return asks


cdef PatternPlugin plugin_of(cls):
    cdef Table table
    cdef PatternPlugin plugin
    from mqcore.spi.python_pattern import Pattern as Base

    if not (isinstance(cls, type) and issubclass(cls, Base)):
        raise TypeError(f"{cls!r} does not derive from mqcore.spi.python_pattern.Pattern")
    if cls.sends and cls.route is Base.route:
        raise TypeError("it sends, but has no route()")
    table = Table(cls)
    plugin = plugin_new(&table.c.ops, cls.name, cls.number, cls.zmtp, -1,
                                           tuple(cls.peers), tuple(cls.options),
                                           (cls.__doc__ or "").strip().split("\n")[0])
    plugin._keeps = table
    return plugin


def plugin(cls) -> PatternPlugin:
    """The plug-in of a class derived from mqcore.spi.python_pattern.Pattern."""
    return plugin_of(cls)
