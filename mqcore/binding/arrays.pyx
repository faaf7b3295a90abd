"""Messages as NumPy arrays, both ways: one copy of every body, no object per message."""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.base.message cimport msg_data, msg_size
from mqcore.binding.message cimport message_end, skip_envelope

from mqcore.errors import UsageError

NARROW = INT32_MAX  # bytes of one Batch; above, its offsets are int64

ctypedef fused offset_t:
    int32_t
    int64_t


# -- received --------------------------------------------------------------------------------------

cdef void _fill(MsgVec* v, uint8_t* data, offset_t* offsets, offset_t* split) noexcept nogil:
    cdef size_t at = 0, end, start, i, size, n = 0
    cdef offset_t where = 0
    offsets[0] = 0
    while at < v.n:
        end = message_end(v, at)
        start = skip_envelope(v, at)
        split[n] = where + <offset_t> msg_size(&v.at[start])
        for i in range(start, end):
            size = msg_size(&v.at[i])
            if size:
                memcpy(data + where, msg_data(&v.at[i]), size)
            where += <offset_t> size
        n += 1
        offsets[n] = where
        at = end


cdef object batch_of(MsgVec* v):
    """The messages in v as (data, offsets, split) arrays."""
    import numpy
    from mqcore.binding.batch import Batch
    cdef Py_buffer[3] views
    cdef size_t at = 0, end, i, n = 0
    cdef int64_t size = 0
    cdef int taken = 0
    while at < v.n:
        end = message_end(v, at)
        for i in range(skip_envelope(v, at), end):
            size += <int64_t> msg_size(&v.at[i])
        n += 1
        at = end
    cdef bint wide = size > <int64_t> NARROW
    kind = numpy.int64 if wide else numpy.int32
    arrays = (numpy.empty(size, numpy.uint8), numpy.empty(n + 1, kind), numpy.empty(n, kind))
    try:
        for array in arrays:
            PyObject_GetBuffer(array, &views[taken], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)
            taken += 1
        if wide:
            _fill[int64_t](v, <uint8_t*> views[0].buf, <int64_t*> views[1].buf,
                           <int64_t*> views[2].buf)
        else:
            _fill[int32_t](v, <uint8_t*> views[0].buf, <int32_t*> views[1].buf,
                           <int32_t*> views[2].buf)
    finally:
        while taken:
            taken -= 1
            PyBuffer_Release(&views[taken])
    return Batch(*arrays)


# -- to be sent ------------------------------------------------------------------------------------

cdef object bytes_of(data):
    """What send_batch() takes as data: a C-contiguous view of bytes."""
    if isinstance(data, str):
        raise UsageError("data is bytes, not str", hint="send text.encode()")
    try:
        view = memoryview(data)
    except TypeError:
        raise UsageError(f"data must be bytes or an array of uint8, not {type(data).__name__}"
                         ) from None
    if view.itemsize != 1 or view.format not in ("B", "b", "c"):
        raise UsageError(f"data must hold bytes (uint8), not items of format {view.format!r}",
                         hint="array.view(numpy.uint8) gives the bytes of an array")
    if not view.c_contiguous:
        raise UsageError("data must be C-contiguous: this array has gaps or another order",
                         hint="numpy.ascontiguousarray(data) makes a copy without them")
    return view.cast("B")


cpdef object numbers_of(str name, values):
    """offsets or split as a contiguous array of int64."""
    import numpy
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be an array of integers: {error}") from None
    if array.size == 0 and not isinstance(values, numpy.ndarray):
        array = array.astype(numpy.int64)     # an empty list has no type
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise UsageError(f"{name} must be a flat array of integers, not of {array.dtype} with "
                         f"{array.ndim} dimension(s)")
    if array.dtype.kind == "u" and array.size and int(array.max()) > <int64_t> 0x7fffffffffffffff:
        raise UsageError(f"{name} has a number above 2**63 - 1")
    return numpy.ascontiguousarray(array, dtype=numpy.int64)
