"""SocketHandle: a socket's C half as Python holds it."""

from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.message cimport MsgVec
from mqcore.base.slab cimport Owner
from mqcore.sock.plane cimport PlaneCore
from mqcore.sock.sock cimport Sock
from mqcore.spi.pattern cimport PatternPlugin

cdef enum:
    CAN_RECV = 1
    CAN_SEND = 2


cdef class SocketHandle:
    cdef Sock* s
    cdef readonly PlaneCore plane
    cdef readonly PatternPlugin plugin
    cdef MsgVec vec                       # the vector of one call at a time, others make their own
    cdef atomic[uint32_t] vec_taken
    cdef atomic[Owner*] arena             # slab that bodies of middle size are copied into
    cdef int64_t send_ns                  # default time-outs; -1 for ever
    cdef int64_t recv_ns
    cdef bint owes                        # REP: plain recv() gave a request not yet answered
    cdef bint answers                     # pattern with send_to and strict order
    cdef bint routes                      # ROUTER: recv() is refused
    cdef bint groups                      # RADIO, DISH: the first of two parts is a group
    cdef bint chooses                     # SUB, DISH: who wants nothing waits in vain
    cdef readonly bint device_owned       # a device moves its messages: other use is refused
    cdef MsgVec held                      # a message that recv_into() had no room for
    cdef list _keep                       # bytes that the handshake configuration points to
    cdef public object _level             # of fileno(): looks again after each receive; or None
    cdef object __weakref__

    cdef void let_go(self) noexcept
    cdef void reflag(self) noexcept
    cdef int set_locked(self, str name, value) except -1
    cdef int check(self) except -1
    cdef int can(self) except -1          # CAN_RECV, CAN_SEND: would not wait, exact now
    cdef int64_t deadline(self, object timeout, int64_t default) except -2
    cdef int wait(self, uint32_t seen, int64_t deadline) except -1
    cdef int fail(self, int rc, bint sending) except -1
