"""A filter's data plane: the form of a session after its handshake. See filter.py.

The thread that holds the engine's lease calls all operations, one at a time. They are nogil, never
block, do no I/O, and take no lock that another thread holds across a system call. The state is one
struct that starts with `Filter`. A filter in Cython creates a `NativeFilter` with `native_filter`
and returns it from FilterSession.native(). The engine then owns the state and calls `fini` once.
A session in Python becomes one, too (python/filter_ops.pxd). Engines with FILTER_GIL run on the
context's filter thread only.

Local faults are MQ_NOMEM. Remote faults are MQ_PROTOCOL, with `reason` set to a text that lives as
long as the filter (`reason_text` has space for a composed one).
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.bytes cimport Bytes
from mqcore.base.includes cimport iovec

cdef enum:
    FILTER_OPS_ABI = 1
    FILTER_KEEP = 16 * 1024   # an idle connection keeps no larger buffer than this

cdef enum FilterFlag:
    FILTER_GIL = 1            # runs Python: never call it on a thread that already holds the GIL
    FILTER_ENDS = 2           # its stream ends with MQ_DONE; without that it was truncated

cdef struct Filter:           # the head of every filter's state
    const FilterOps* ops
    const char* reason
    char[160] reason_text

cdef struct FilterOps:
    uint32_t abi              # FILTER_OPS_ABI
    uint32_t flags            # FilterFlag
    # The connection is over: frees everything, including the state.
    void (*fini)(Filter* self) noexcept nogil
    # Bytes from below. Takes all of data[0..n), even what it cannot use yet. Puts the result for
    # above into out[0..size), *made bytes, and appends a response for below to `down`. MQ_OK: `out`
    # is full and there may be more, call again with n = 0. MQ_NEED_DATA: `out` has everything.
    # MQ_DONE: the same, and the peer has ended its stream in order. MQ_PROTOCOL; MQ_NOMEM.
    int (*decode)(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                  size_t* made, Bytes* down) noexcept nogil
    # Bytes from above, in `pieces`. Takes all of them and appends the result to `down` at once, so
    # that nothing waits for the next call. MQ_OK, MQ_NOMEM, MQ_PROTOCOL (the stream cannot
    # continue).
    int (*encode)(Filter* self, const iovec* pieces, int n, Bytes* down) noexcept nogil
    # This side ends the stream in order: final bytes go into `down`. May be NULL.
    int (*finish)(Filter* self, Bytes* down) noexcept nogil

cdef class NativeFilter:
    """Carries a filter's state from Python to an engine. If nothing has taken the state, this
    object frees it at its end."""
    cdef Filter* filter
    cdef Filter* take(self) noexcept        # the caller owns the state now

cdef NativeFilter native_filter(Filter* filter)
