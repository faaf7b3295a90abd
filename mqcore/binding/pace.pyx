"""Pace: after how many calls that did not wait, or how long, a task lets others run. The question
comes before each such call, which takes little more than it, so it is answered in C.
"""

from libc.stdint cimport int64_t

import sys

from mqcore.base.clock cimport now_ns
from mqcore.base.virtual import WORLDS, monotonic
from mqcore.binding.sleep import in_trio

cdef enum:
    MOST = 64           # calls
    SLICE = 500_000     # ns

TURNS = MOST
cdef dict MODULES = sys.modules


cdef int64_t clock() except -1:
    return <int64_t> (monotonic() * 1e9) if WORLDS else now_ns()


cpdef bint counted() except -1:
    """One call more. Whether other tasks have their turn now."""
    cdef int64_t count = pace_next()
    if count == 1:
        pace_begin(clock())
        return False
    return count > MOST or clock() - pace_since() > SLICE


def due():
    """Whether the caller must await turn() before it continues. On trio always."""
    return "trio" in MODULES and in_trio() or counted()


def slept():
    """The task waits: other tasks have their turn."""
    pace_forget()
