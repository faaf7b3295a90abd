"""Received messages as NumPy arrays: one copy of every body, no object per message."""

from libc.string cimport memcpy

from mqcore.base.message cimport msg_data, msg_size
from mqcore.sock.message cimport message_end, skip_envelope


cdef object batch_of(MsgVec* v):
    """The messages in v as (data, offsets, split) arrays."""
    import numpy
    from mqcore.sock.batch import Batch
    cdef size_t at, end, start, i, size = 0, n = 0
    cdef unsigned char[::1] data
    cdef int[::1] offsets, split
    cdef int where = 0
    at = 0
    while at < v.n:
        end = message_end(v, at)
        for i in range(skip_envelope(v, at), end):
            size += msg_size(&v.at[i])
        n += 1
        at = end
    a_data = numpy.empty(size, numpy.uint8)
    a_offsets = numpy.empty(n + 1, numpy.int32)
    a_split = numpy.empty(n, numpy.int32)
    offsets = a_offsets
    split = a_split
    data = a_data
    offsets[0] = 0
    at = 0
    n = 0
    while at < v.n:
        end = message_end(v, at)
        start = skip_envelope(v, at)
        split[n] = where + <int> msg_size(&v.at[start])
        for i in range(start, end):
            if msg_size(&v.at[i]):
                memcpy(&data[where], msg_data(&v.at[i]), msg_size(&v.at[i]))
            where += <int> msg_size(&v.at[i])
        n += 1
        offsets[n] = where
        at = end
    return Batch(a_data, a_offsets, a_split)
