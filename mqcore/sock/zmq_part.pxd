"""Part: the C half of mqcore.zmq.Frame."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport MsgVec
from mqcore.sock.core cimport SocketCore


cdef class Part:
    cdef public object _data          # bytes, or something else with a buffer
    cdef public bint more
    cdef public object tracker
    cdef public object tracker_event  # pyzmq's; always None
    cdef public str _group
    cdef public uint32_t _routing_id  # of SERVER and PEER; 0: none
    cdef SocketCore core              # that it was received by; or None
    cdef readonly uint32_t _peer_id
    cdef object _view
    cdef object __weakref__

    cdef object whole(self)           # _data, whatever other threads do

# The parts of a received message from its `first` on, as objects of `kind`, a class derived from
# Part. tracker: theirs.
cdef list parts_as(type kind, SocketCore core, MsgVec* v, size_t first, object tracker)
# One more of that class.
cdef Part part_of(type kind, object data, bint more, object tracker)
