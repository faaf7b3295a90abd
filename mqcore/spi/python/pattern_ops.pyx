"""The ops table of a pattern written as one Python class: the adapter under pattern.py, by the
rules of operation.pxd. First the operations with the GIL, then those without, then the plug-in."""

from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free

from mqcore.base.gil cimport finalizing
from mqcore.base.message cimport Msg, MsgVec, vec_clear, vec_fini
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_FAILED, MQ_FULL, MQ_INVALID, MQ_NO_PEER, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.spi.inbound cimport inbound_join, inbound_leave, inbound_next, inbound_turn, take
from mqcore.spi.pattern cimport (
    PAT_EXCLUSIVE, PAT_FANOUT, PAT_IDENTITY, PAT_RECV, PAT_REROUTE, PAT_SEND, PAT_SERVICE,
    PAT_WAITS, PATTERN_ABI, Pattern, PatternOps, PatternPlugin, Q_CAN_RECV, Q_CAN_SEND, op_raised,
    plugin_new,
)
from mqcore.spi.pipe cimport DROP_UNEXPECTED, Pipe, pipe_discard, pipe_write
from mqcore.spi.python.operation cimport Inside, enter, leave
from mqcore.spi.python.runner cimport (
    ASK_ACCEPT, ASK_ATTACH, ASK_CAN_SEND, ASK_DETACH, ASK_HANGUP, ASK_PICK, PyState, Runner,
)
from mqcore.spi.python.view cimport Peer

from mqcore.errors import OptionError

cdef struct ClassOps:
    PatternOps ops            # first: sockets point to it
    PyObject* table           # borrowed: the Table that contains this
    uint32_t asks


cdef class Table


# -- with the GIL ----------------------------------------------------------------------------------

cdef inline Runner runner_of(PyState* st):
    return <Runner> st.runner


cdef int gil_init(PyState* st) noexcept with gil:
    cdef Table table = <Table> (<ClassOps*> st.head.ops).table
    cdef Runner runner = Runner.__new__(Runner)
    try:
        runner.state = st
        runner.options = tuple(table.cls.options)
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


# -- without it ----------------------------------------------------------------------------------

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
    from mqcore.spi.python.pattern import Pattern as Base

    cdef uint32_t asks = 0
    for name, ask in (("attach", ASK_ATTACH), ("hangup", ASK_HANGUP), ("detach", ASK_DETACH),
                      ("pick", ASK_PICK), ("accept", ASK_ACCEPT), ("can_send", ASK_CAN_SEND)):
        if getattr(cls, name) is not getattr(Base, name):
            asks |= ask
    return asks


def plugin(cls) -> PatternPlugin:
    """The plug-in of a class derived from mqcore.spi.python.pattern.Pattern."""
    cdef Table table
    cdef PatternPlugin plugin
    from mqcore.spi.python.pattern import Pattern as Base

    if not (isinstance(cls, type) and issubclass(cls, Base)):
        raise TypeError(f"{cls!r} does not derive from mqcore.spi.python.pattern.Pattern")
    if cls.sends and cls.route is Base.route:
        raise TypeError("it sends, but has no route()")
    table = Table(cls)
    plugin = plugin_new(&table.c.ops, cls.name, cls.number, cls.zmtp, -1, tuple(cls.peers),
                        tuple(cls.options), (cls.__doc__ or "").strip().split("\n")[0])
    plugin._keeps = table
    return plugin
