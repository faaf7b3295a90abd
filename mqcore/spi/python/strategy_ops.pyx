"""The ops table of a strategy written as a Python class: the adapter under strategy.py. Its
operations take the GIL with the socket's lock held, by the rules of operation.pxd.
"""

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint32_t

from mqcore.base.gil cimport finalizing
from mqcore.base.status cimport MQ_FAILED, MQ_OK, MQ_STATE
from mqcore.spi.pattern cimport op_current, op_raised
from mqcore.spi.pipe cimport Pipe
from mqcore.spi.python.operation cimport Inside, enter, leave, report
from mqcore.spi.strategy cimport (
    CHOSE_TOLD, STRATEGY_ABI, Strategy, StrategyOps, StrategyPlugin, pipe_load, strategy_new,
)


# -- what a class is shown -------------------------------------------------------------------------

@cython.final
@cython.freelist(16)
cdef class Candidate:
    """A peer as it was when `choose` looked at it."""
    cdef readonly uint32_t id         # Peer.id
    cdef readonly int prio            # 1 best .. 16
    cdef readonly int64_t load        # messages queued for it, and requests it has not answered
    cdef readonly uint32_t owed       # of them the requests
    cdef readonly bint connected      # by our connect(); False: it came in through our bind()
    cdef readonly bytes routing_id

    def __init__(self):
        raise TypeError("candidates come from the socket")

    def __repr__(self):
        return f"<peer {self.id}, prio {self.prio}, load {self.load}>"


@cython.final
@cython.no_gc
cdef class Candidates:
    """The peers that may have the message: a sequence, valid until `choose` returns."""
    cdef Pipe** at
    cdef uint32_t n
    cdef void* owner          # whose choose() was shown them
    cdef readonly int64_t size        # bytes of the message

    def __init__(self):
        raise TypeError("candidates come from the socket")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self.n))]
        return self.look(i + self.n if i < 0 else i)

    cdef Candidate look(self, Py_ssize_t i):
        cdef Candidate seen
        cdef Pipe* p
        if not 0 <= i < <Py_ssize_t> self.n or op_current() != self.owner:
            raise IndexError("there is no such peer, or the call that was shown them has ended")
        p = self.at[i]
        seen = Candidate.__new__(Candidate)
        seen.id = p.id
        seen.prio = p.prio
        seen.load = pipe_load(p)
        seen.owed = p.owed
        seen.connected = p.connected != 0
        seen.routing_id = (b"" if p.routing_id == NULL else
                           (<const char*> p.routing_id)[:p.routing_id_size])
        return seen


# -- its adapter -----------------------------------------------------------------------------------

cdef struct ClassOps:
    StrategyOps ops           # first: what sockets point to
    PyObject* table           # borrowed: the Table that this lies in

cdef struct PyState:
    Strategy head            # first
    PyObject* table           # owned, so that ops stays
    PyObject* me              # owned: the class's instance
    PyObject* shown           # owned: Candidates
    uint32_t failing          # in a run of failures, already reported


cdef int gil_init(PyState* st) noexcept with gil:
    cdef Inside inside
    cdef Table table = <Table> (<ClassOps*> st.head.ops).table
    cdef int rc
    enter(&inside, st)
    rc = try_init(st, table)
    leave(&inside)
    return rc


cdef int try_init(PyState* st, Table table) noexcept:
    cdef Candidates shown = Candidates.__new__(Candidates)
    try:
        me = table.cls()
    except BaseException as error:
        op_raised(error)
        return MQ_FAILED
    Py_INCREF(table)
    Py_INCREF(me)
    Py_INCREF(shown)
    shown.owner = st
    st.table = <PyObject*> table
    st.me = <PyObject*> me
    st.shown = <PyObject*> shown
    return MQ_OK


cdef void gil_fini(PyState* st) noexcept with gil:
    cdef Inside inside
    enter(&inside, st)
    Py_XDECREF(st.me)
    Py_XDECREF(st.shown)
    Py_XDECREF(st.table)
    leave(&inside)


cdef uint32_t gil_choose(PyState* st, Pipe** peers, uint32_t n, int64_t size) noexcept with gil:
    cdef Inside inside
    cdef Candidates shown = <Candidates> st.shown
    cdef uint32_t chosen
    enter(&inside, st)
    shown.at = peers
    shown.n = n
    shown.size = size
    chosen = try_choose(st, shown)
    shown.n = 0
    leave(&inside)
    return chosen


cdef uint32_t try_choose(PyState* st, Candidates shown) noexcept:
    cdef int64_t chosen
    try:
        answer = (<object> st.me).choose(shown)
        if isinstance(answer, int) and not isinstance(answer, bool):
            chosen = answer if 0 <= answer < shown.n else -1
            if chosen >= 0:
                st.failing = 0
                return <uint32_t> chosen
        raise ValueError(f"it gave {answer!r}, not an index from 0 to {shown.n - 1}")
    except BaseException as error:
        try:
            report(st.head.host, error, f"{type(<object> st.me).__name__}.choose", &st.failing)
        except BaseException:
            pass              # nothing is left to tell it with
        return CHOSE_TOLD


cdef int py_init(Strategy* self) noexcept nogil:
    return MQ_STATE if finalizing() else gil_init(<PyState*> self)


cdef void py_fini(Strategy* self) noexcept nogil:
    if not finalizing():
        gil_fini(<PyState*> self)


cdef uint32_t py_choose(Strategy* self, Pipe** peers, uint32_t n, int64_t size) noexcept nogil:
    return CHOSE_TOLD if finalizing() else gil_choose(<PyState*> self, peers, n, size)


cdef class Table:
    """The ops table of one class. What sockets point to lies in it."""
    cdef ClassOps c
    cdef object cls

    def __cinit__(self, cls):
        self.cls = cls
        self.c.table = <PyObject*> self
        self.c.ops.abi = STRATEGY_ABI
        self.c.ops.size = sizeof(PyState)
        self.c.ops.init = py_init
        self.c.ops.fini = py_fini
        self.c.ops.choose = py_choose


def plugin(given) -> StrategyPlugin:
    """The plug-in of a class derived from mqcore.spi.python.strategy.Strategy."""
    cdef Table table
    cdef StrategyPlugin made
    from mqcore.spi.python.strategy import Strategy as Base

    if not (isinstance(given, type) and issubclass(given, Base)):
        raise TypeError("neither a class derived from mqcore.spi.python.strategy.Strategy nor made "
                        "by strategy_new()")
    if given.choose is Base.choose:
        raise TypeError("it has no choose()")
    table = Table(given)
    made = strategy_new(&table.c.ops, given.name or given.__name__.lower(),
                        (given.__doc__ or "").strip().split("\n")[0])
    made._keeps = table
    return made
