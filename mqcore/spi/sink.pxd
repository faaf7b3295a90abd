"""A sink: where a device's messages end up. A socket is one, a journal's writer another.

The device calls it on its own thread, without the GIL and without any lock, and asks again when
one could not take a message. What Python hands to a device is an object whose `_mq_sink()` gives a
capsule named "mqcore.sink" with a `Sink*` in it, valid as long as the object lives.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg, MsgVec

cdef enum:
    SINK_ABI = 2

cdef struct SinkOps:
    uint32_t abi
    # Take whole messages from v, beginning at part `start`; *done is the part after the last one
    # taken. Handles taken are the sink's, the others stay the caller's. MQ_OK: all; MQ_AGAIN or
    # MQ_FULL: not now; MQ_DROPPED: the last one taken is a duplicate of one that was stored before,
    # and the caller counts it; anything else: the message at *done is refused for good, the caller
    # drops and counts it.
    int (*take)(void* self, MsgVec* v, size_t start, size_t* done) noexcept nogil
    # 1 if a message would be taken now. Asked before a source is read, so that back-pressure
    # reaches it.
    int (*ready)(void* self) noexcept nogil
    # Everything up to the n-th message taken is durable (a socket: written to the kernel). May be
    # NULL.
    int64_t (*durable)(void* self) noexcept nogil
    # -- NULL for a socket ---------------------------------------------------------------------
    # Take one message, parts[0..n), and say where it is, durable or not yet. MQ_OK: the parts are
    # closed; MQ_DROPPED: they are, too, for the message is stored already, at *offset (-1: that is
    # no longer known); MQ_FULL: not now; MQ_INVALID: never; MQ_GONE: never, for its sequence number
    # is too old to tell; MQ_STATE: never, for another message has its sequence number.
    int (*place)(void* self, Msg* parts, size_t n, int64_t* offset,
                 uint32_t* partition) noexcept nogil
    # Make all that was taken durable; 0 or an errno. May block for long.
    int (*commit)(void* self) noexcept nogil
    # The errno for which nothing can be taken until somebody helps (disk full); 0: none.
    int (*error)(void* self) noexcept nogil

cdef struct Sink:
    const SinkOps* ops
    void* self
