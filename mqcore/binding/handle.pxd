"""SocketHandle: a socket's C half as Python holds it."""

from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.message cimport MsgVec
from mqcore.base.slab cimport Owner
from mqcore.binding.plane cimport PlaneCore
from mqcore.sock.sock cimport Sock
from mqcore.spi.pattern cimport PatternPlugin

cdef enum:
    CAN_RECV = 1
    CAN_SEND = 2

cdef enum:                    # SocketHandle.owes
    OWES_NOTHING = 0
    OWES_CLAIMED = 1          # a plain receive is under way
    OWES_ANSWER = 2           # it gave a request that has not been answered


cdef class SocketHandle:
    cdef Sock* s
    cdef readonly PlaneCore plane
    cdef readonly PatternPlugin plugin
    cdef MsgVec vec                       # the vector of one call at a time, others make their own
    cdef atomic[uint32_t] vec_taken
    cdef atomic[Owner*] arena             # slab that bodies of middle size are copied into
    cdef int64_t send_ns                  # default time-outs; -1 for ever
    cdef int64_t recv_ns
    cdef atomic[uint32_t] owes            # REP: OWES_*
    cdef bint answers                     # pattern with send_to and strict order
    cdef bint routes                      # ROUTER: recv() is refused
    cdef bint groups                      # RADIO, DISH: the first of two parts is a group
    # SUB, DISH: without a subscription a receive would wait for ever
    cdef bint chooses
    cdef atomic[uint32_t] owned           # a device moves its messages: other use is refused
    # Whole messages that a call took and could not return (recv_into() was full), oldest first;
    # in the critical section of this object. n_kept: handles in it, to look at from outside.
    cdef MsgVec kept
    cdef atomic[uint32_t] n_kept
    cdef bint keeps_none                  # closed: what comes now is dropped
    cdef list _keep                       # bytes that the handshake configuration points to
    # of fileno(): checks again after each receive; or None. Protected by the critical section of
    # this object, except for the test whether there is one
    cdef object level
    cdef object __weakref__

    cdef void let_go(self) noexcept
    cdef int keep(self, MsgVec* v) except -1      # moves what is in v in
    cdef bint take_kept(self, MsgVec* v) noexcept # moves the oldest message to the end of v
    cdef size_t take_more(self, MsgVec* v, size_t most) noexcept  # and so many at most; how many
    cdef void forgive(self) noexcept
    cdef int unpull(self, MsgVec* v) except -1    # what was taken and could not be given
    cdef int drop_kept(self) except -1
    cdef int lose(self, MsgVec* v, uint32_t reason) except -1
    cdef int settle(self) except -1       # has the level look again; there is one
    cdef int claim(self) except -1        # for a device; UsageError: another has it
    cdef void unclaim(self) noexcept
    cdef int open_watch(self) except -2   # watch_open(); any thread
    cdef void reflag(self) noexcept
    cdef int set_locked(self, str name, value) except -1
    cdef int check(self) except -1
    cdef int never(self) except -1
    cdef int can(self) except -1          # CAN_RECV, CAN_SEND: would not wait, exact now
    cdef int can_of(self, int wanted) except -1   # the same, of what is wanted
    cdef int64_t deadline(self, object timeout, int64_t default) except -2
    cdef int wait(self, uint32_t seen, int64_t deadline, bint taker=*) except -1
    cdef int step(self, uint32_t seen, int64_t deadline) except -1
    cdef int fail(self, int rc, bint sending) except -1
