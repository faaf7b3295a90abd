"""A gate: what may pass into storage, by the connection and the topic of a message. Python decides
once about each pair; the verdict is remembered."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    GATE_VERDICTS = 1024      # remembered; a power of two

cdef struct Verdict:
    uint32_t peer             # 0: none
    bint passes
    uint8_t size
    uint8_t[255] topic       # SINK_TOPIC

cdef class Gate:
    cdef object ask           # (number of the peer, topic) -> whether it passes
    cdef Verdict[1024] verdicts

    # One thread; at most SINK_TOPIC bytes. What `ask` raises is logged, and the message does not
    # pass.
    cdef bint passes(self, uint32_t peer, const uint8_t* topic, size_t size) noexcept nogil
