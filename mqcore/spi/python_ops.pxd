"""The ops table of a pattern written as one Python class: the adapter under python_pattern.py.

Operations are called with the socket's lock held, on any thread, without the GIL; these take it.
That is sound because of four rules:

- Nobody waits for a socket's lock with the GIL in hand (sock/gil.pxd), so its holder gets the GIL.
- Nothing in the class waits for another lock of ours: it calls no socket (`op_refuse` sees to it),
  and no cyclic collection, whose finalizers might, starts while it runs.
- The class only decides; peers are written and read here, after it has returned. Whatever it
  raises, a signal's handler included, means that nothing was taken.
- What it raises, whatever it is, goes to the caller of send or recv once the lock is free. Where
  there is none, it becomes an event and a line in the log; what a signal's handler raised there is
  raised again in the main thread.

An interpreter that ends gives no GIL: operations say "not now" then.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.spi.inbound cimport Inbound
from mqcore.spi.pattern cimport Pattern, PatternOps, PatternPlugin

cdef enum:                    # Table.asks: methods that the class has of its own
    ASK_ATTACH = 1
    ASK_HANGUP = 2
    ASK_DETACH = 4
    ASK_PICK = 8
    ASK_ACCEPT = 16
    ASK_CAN_SEND = 32

cdef struct ClassOps:
    PatternOps ops            # first: what sockets point to
    PyObject* table           # borrowed: the Table that this lies in
    uint32_t asks

cdef struct PyState:
    Pattern head              # first
    PyObject* runner          # owned
    uint32_t asks
    uint32_t n_live           # peers that may be written
    uint32_t failing          # a run of failures that was told of
    uint32_t dropping         # 1 << reason: a run of drops without a peer that was told of
    Inbound inbound
    MsgVec scratch
    Msg** seen                # parts of the message that `accept` looks at
    size_t cap_seen

cdef struct Inside:           # one operation that runs Python
    void* before
    PyObject* kind
    PyObject* value
    PyObject* trace

# Around every operation that runs Python, with the GIL: `owner` is whose it is (op_begin).
cdef void enter(Inside* inside, void* owner)
cdef void leave(Inside* inside)
cdef str described(object error, str where)    # for EV_FAILED: what was raised, and where

cdef PatternPlugin plugin_of(cls)
