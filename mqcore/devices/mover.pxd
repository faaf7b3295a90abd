"""A device: messages of one socket go to another and back, without Python."""

from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.message cimport MsgVec
from mqcore.binding.core cimport SocketCore
from mqcore.devices.hooks cimport Stages
from mqcore.sock.sock cimport Sock
from mqcore.spi.sink cimport Sink

cdef struct Flow:             # one direction
    Sock* source
    Sink sink
    MsgVec hand               # read, not yet taken by the sink
    MsgVec spare              # scratch memory of the hooks
    uint32_t hooked           # HOOK_FORTH or HOOK_BACK if a hook sees this direction, else 0
    size_t at
    bint open                 # this direction exists (PULL to PUSH has one)
    atomic[int64_t] messages
    atomic[int64_t] bytes_
    atomic[int64_t] refused   # messages that the sink will never take

cdef class DeviceCore:
    cdef readonly SocketCore front
    cdef readonly SocketCore back
    cdef readonly SocketCore capture
    cdef list hooks           # HookCores, in order
    cdef Stages stages        # the same
    cdef int failed           # the place of the hook that stopped the device; -1: none did
    cdef Flow forth
    cdef Flow back_flow
    cdef void* set            # our own poll set over both sockets' sets
    cdef atomic[uint32_t] stopping
    cdef atomic[uint32_t] paused
    cdef atomic[int64_t] captured
    cdef atomic[int64_t] missed
    cdef atomic[int64_t] discarded

    cdef int add_hooks(self, list hooks) except -1
    cdef int take(self, list sockets) except -1
    cdef int make_raw(self) except -1
    cdef bint goes_on(self) noexcept nogil
    cdef void loop(self) noexcept nogil
    cdef bint move(self, Flow* flow) noexcept nogil
    cdef size_t pass_hooks(self, Flow* flow, size_t count) noexcept nogil
    cdef void tap(self, Flow* flow, size_t before) noexcept nogil
    cdef void sleep(self, uint32_t seen_front, uint32_t seen_back) noexcept nogil
    cdef void harvest(self, Sock* s) noexcept nogil


cdef void take_lead(Sock* s) noexcept nogil         # until give_lead(); the I/O thread looks away
cdef void give_lead(Sock* s) noexcept nogil
