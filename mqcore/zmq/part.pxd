"""Part: the C half of mqcore.zmq.Frame."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport MsgVec
from mqcore.binding.core cimport SocketCore


cdef class Part:
    cdef object data                  # bytes, or something else with a buffer; see content()
    cdef object copied                # what `bytes` gave, where `data` is not replaced by it
    cdef object viewed                # a weak reference to what `buffer` gave last
    cdef public bint more
    cdef public object tracker
    cdef public object tracker_event  # pyzmq's; always None
    # what lives as long as the memory of `data` is in use; None: nothing depends on its end
    cdef readonly object held
    cdef public str _group
    cdef public uint32_t _routing_id  # of SERVER and PEER; 0: none
    cdef SocketCore core              # that it was received by; or None
    cdef readonly uint32_t _peer_id
    cdef object __weakref__

    # `data`, which `bytes` replaces once by a copy of itself
    cdef object content(self)

# The parts of a received message from its `first` on, as objects of `kind`, a class derived from
# Part. tracker: theirs.
cdef list parts_as(type kind, SocketCore core, MsgVec* v, size_t first, object tracker)
# One more of that class.
cdef Part part_of(type kind, object data, bint more, object tracker)
