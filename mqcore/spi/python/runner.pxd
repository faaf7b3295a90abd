"""Calls to a pattern's class, and what becomes of their results. Under pattern_ops.pyx."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.spi.inbound cimport Inbound
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe
from mqcore.spi.python.view cimport Parts, Peer

cdef enum:                    # PyState.asks: methods that the class defines
    ASK_ATTACH = 1
    ASK_HANGUP = 2
    ASK_DETACH = 4
    ASK_PICK = 8
    ASK_ACCEPT = 16
    ASK_CAN_SEND = 32

cdef struct PyState:
    Pattern head              # first
    PyObject* runner          # owned
    uint32_t asks
    uint32_t n_live           # peers that may be written to
    uint32_t failing          # a run of failures that was reported
    uint32_t dropping         # 1 << reason: a run of drops without a peer that was reported
    Inbound inbound
    MsgVec scratch
    Msg** seen                # parts of the message that `accept` examines
    size_t cap_seen

cdef class Runner:
    """One a socket. Nothing here waits or calls a socket; whatever runs Python comes before the
    first change. What raises has changed nothing; the ints are Statuses."""
    cdef PyState* state
    cdef object me            # the class's instance
    cdef tuple options        # its rows
    cdef dict peers           # by id
    cdef tuple live

    cdef int attach(self, Pipe* pipe) except -1
    cdef int hangup(self, Pipe* pipe) except -1
    cdef int detach(self, Pipe* pipe) except -1
    cdef int route(self, Msg* parts, size_t n) except -1
    cdef bint can_send(self) except -1
    # recv, and with `look` whether it would give a message; what accept() throws away on the way is
    # thrown away.
    cdef int receive(self, MsgVec* out, bint look) except -1
    cdef int set_option(self, const char* name, int64_t number, const uint8_t* data,
                        size_t size) except -1
    # What the class raised finds its way; the Status that the operation ends with. `caller`: the
    # status reaches one who sends or receives. `later`: says that nothing was taken.
    cdef int failed(self, object error, str where, bint caller, int later) except -1

    # private
    cdef tell_live(self)
    cdef forget(self, Peer peer)
    cdef quietly(self, str method, Peer peer)
    cdef Peer mine(self, object choice)
    cdef Parts view(self)
    cdef int write(self, Peer peer, Msg* parts, size_t n) except -1
    cdef int drop_out(self, uint32_t reason, Msg* parts, size_t n) except -1
    cdef int spread(self, list targets, Msg* parts, size_t n) except -1
    cdef Pipe* source(self) except? NULL
    cdef tuple ready(self)
    cdef int judged(self, Pipe* pipe, MsgVec* out, bint look) except -1
    cdef int judged_latest(self, Pipe* pipe, MsgVec* out) except -1
    cdef size_t see(self, Pipe* pipe) except 0
    cdef int rewrite(self, verdict, MsgVec* to) except -1
    cdef emit(self, uint32_t what, Pipe* pipe, str text)
