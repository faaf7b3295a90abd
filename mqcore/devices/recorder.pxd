"""Moves a socket's messages into a sink other than a socket, without Python."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.message cimport Msg, MsgVec
from mqcore.binding.core cimport SocketCore
from mqcore.devices.gate cimport Gate
from mqcore.spi.sink cimport Sink

cdef enum:
    RECORD_BURST = 256        # messages moved at a time, and made durable with one commit

cdef struct Place:            # what became of a request
    size_t at                 # its first part in the hand
    size_t body               # the one behind its envelope
    int64_t offset
    uint32_t partition
    uint32_t status           # of the answer: FORMAT.md

cdef class RecorderCore:
    cdef readonly SocketCore front
    cdef readonly object target
    cdef readonly bint answers
    cdef Sink sink
    cdef Gate gate            # None: everything passes
    cdef void* set
    cdef MsgVec hand          # read, not yet taken by the sink
    cdef size_t at
    cdef Place[256] places
    cdef int failure          # why run() ended; 0: on request
    cdef atomic[uint32_t] stopping
    cdef atomic[uint32_t] paused
    cdef atomic[int64_t] messages
    cdef atomic[int64_t] bytes_
    cdef atomic[int64_t] refused
    cdef atomic[int64_t] duplicates
    cdef atomic[int64_t] acknowledged
    cdef atomic[int64_t] denied

    cdef bint goes_on(self) noexcept nogil
    cdef void loop(self) noexcept nogil
    cdef void harvest(self) noexcept nogil
    cdef bint fill(self) noexcept nogil
    cdef bint may_pass(self, uint32_t peer, Msg* parts, size_t n) noexcept nogil
    cdef void sift(self) noexcept nogil
    cdef bint move(self) noexcept nogil
    cdef bint exchange(self) noexcept nogil
    cdef void answer(self, Place* place) noexcept nogil
    cdef void sleep(self, uint32_t seen) noexcept nogil
