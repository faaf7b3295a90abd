"""Messages as NumPy arrays."""

from libc.stdint cimport int64_t

from mqcore.base.message cimport MsgVec

cdef object batch_of(MsgVec* v)               # a Batch of all messages in v
# What a caller gives as data, offsets, split; UsageError if it cannot be meant.
cdef object bytes_of(data)                    # a flat memoryview of bytes
cpdef object numbers_of(str name, values)      # a contiguous array of int64
