"""Received messages as NumPy arrays."""

from mqcore.base.message cimport MsgVec

cdef object batch_of(MsgVec* v)       # a Batch of all messages in v
