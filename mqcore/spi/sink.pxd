"""A sink: where a device's messages end up. A socket is one, a journal's writer another.

The device calls it on its own thread, without the GIL and without any lock. A sink that cannot take
a message now says so and later calls `Sink.ready`, from any thread.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from mqcore.base.message cimport MsgVec

cdef enum:
    SINK_ABI = 1

cdef struct SinkOps:
    uint32_t abi
    # Take whole messages from v, beginning at part `start`; *done is the part after the last one
    # taken. Handles taken are the sink's, the others stay the caller's. MQ_OK: all; MQ_AGAIN or
    # MQ_FULL: not now; anything else: the message at *done is refused for good, the caller drops
    # and counts it.
    int (*take)(void* self, MsgVec* v, size_t start, size_t* done) noexcept nogil
    # 1 if a message would be taken now. Asked before a source is read, so that back-pressure
    # reaches it.
    int (*ready)(void* self) noexcept nogil
    # Everything up to the n-th message taken is durable (a socket: written to the kernel). May be
    # NULL.
    int64_t (*durable)(void* self) noexcept nogil

cdef struct Sink:
    const SinkOps* ops
    void* self
