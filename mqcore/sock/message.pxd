"""From handles to Python objects and back."""

from libc.stdint cimport uint8_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.slab cimport Pool

cdef class Body:                  # exports the buffer of one large part
    cdef Msg m

# Make a handle of any bytes-like object: small ones inside, large `bytes` by reference, others copied.
cdef int part_from(Msg* m, Pool* pool, object data, bint reference, bint* pinned) except -1
# Parts from..to of v. joined: one bytes; list: one each. Envelope parts are left out by `first`.
cdef bytes joined(MsgVec* v, size_t start, size_t end)
cdef list parts_list(MsgVec* v, size_t start, size_t end)
cdef object part_view(Msg* m)     # bytes, or above 4 KiB a memoryview that keeps the slab
cdef size_t message_end(MsgVec* v, size_t start) noexcept nogil       # index after the message's last part
cdef size_t skip_envelope(MsgVec* v, size_t start) noexcept nogil


cdef class Message:
    cdef object core              # SocketCore, for reply and peer
    cdef readonly tuple parts
    cdef MsgVec envelope
    cdef readonly bytes routing_id
    cdef readonly double received_at
    cdef readonly int peer_id
    cdef public bint replied
    cdef object _peer

cdef Message message_new(object core, MsgVec* v, size_t start, size_t end, double now)
