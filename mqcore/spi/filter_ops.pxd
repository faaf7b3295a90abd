"""A filter's data plane: what a session becomes when its handshake is over. See filter.py.

All operations are called by whoever holds the engine's lease, one at a time: nogil, never blocking,
no I/O, no lock that anybody holds across a system call. State is one struct that starts with
`Filter`. A filter in Cython makes a `NativeFilter` with `native_filter` and returns it from
FilterSession.native(); the engine then owns the state and calls `fini` once. For a session that is
Python there is `PY_FILTER`, whose operations take the GIL; engines that carry FILTER_GIL run on the
context's filter thread only.

Local faults are MQ_NOMEM; remote faults are MQ_PROTOCOL with `reason` set to a text that lives as
long as the filter (`reason_text` is room for a composed one).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.bytes cimport Bytes
from mqcore.base.includes cimport iovec

cdef enum:
    FILTER_OPS_ABI = 1

cdef enum FilterFlag:
    FILTER_GIL = 1            # runs Python: never on a thread that holds the GIL already
    FILTER_ENDS = 2           # its stream ends with MQ_DONE: without that it was cut off

cdef struct Filter:           # the head of every filter's state
    const FilterOps* ops
    const char* reason
    char[160] reason_text

cdef struct FilterOps:
    uint32_t abi              # FILTER_OPS_ABI
    uint32_t flags            # FilterFlag
    # The connection is over: frees the state itself too.
    void (*fini)(Filter* self) noexcept nogil
    # Bytes from below. All of data[0..n) is taken, also what cannot be used yet. What it makes for
    # above goes to out[0..room), *made bytes; an answer for below is appended to `down`. MQ_OK:
    # `out` is full and there may be more, call again with n = 0; MQ_NEED_DATA: all there was is
    # out; MQ_DONE: likewise, and the peer has ended its stream in order; MQ_PROTOCOL; MQ_NOMEM.
    int (*decode)(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                  size_t* made, Bytes* down) noexcept nogil
    # Bytes from above, in `pieces`, all taken; what they make is appended to `down` at once:
    # nothing waits for the next call. MQ_OK, MQ_NOMEM, MQ_PROTOCOL (the stream cannot go on).
    int (*encode)(Filter* self, const iovec* pieces, int n, Bytes* down) noexcept nogil
    # We end the stream in order: last words into `down`. May be NULL.
    int (*finish)(Filter* self, Bytes* down) noexcept nogil

cdef class NativeFilter:
    """Carries a filter's state from Python to an engine. Whoever still has it at the end frees
    it."""
    cdef Filter* filter
    cdef Filter* take(self) noexcept        # the caller owns the state now

cdef NativeFilter native_filter(Filter* filter)
# sessions, the outermost first, as one filter. Native forms are asked for here.
cdef Filter* filter_chain(list sessions) except? NULL
