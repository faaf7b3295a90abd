"""Gate: see gate.pxd."""

from libc.string cimport memcmp, memcpy

import logging

_log = logging.getLogger("mqcore.journal")


cdef Verdict* place_of(Gate gate, uint32_t peer, const uint8_t* topic, size_t size) noexcept nogil:
    """The one place where the verdict about this pair can be (as FNV-1a)."""
    cdef uint32_t sum = peer + 1
    cdef size_t i
    for i in range(size):
        sum = (sum ^ topic[i]) * 16777619
    return &gate.verdicts[(sum ^ sum >> 16) & (GATE_VERDICTS - 1)]


cdef bint decide(Gate gate, uint32_t peer, const uint8_t* topic, size_t size,
                 Verdict* found) noexcept with gil:
    cdef bint passes
    try:
        passes = bool(gate.ask(peer, topic[:size]))
    except BaseException:     # SystemExit, too: this thread is the device's
        _log.exception("who may write could not be asked: a message is refused")
        return False
    found.peer = peer
    found.passes = passes
    found.size = <uint8_t> size
    memcpy(found.topic, topic, size)
    return passes


cdef class Gate:
    def __init__(self, ask):
        self.ask = ask

    cdef bint passes(self, uint32_t peer, const uint8_t* topic, size_t size) noexcept nogil:
        cdef Verdict* found = place_of(self, peer, topic, size)
        if found.peer == peer and found.size == size and memcmp(found.topic, topic, size) == 0:
            return found.passes
        return decide(self, peer, topic, size, found)
