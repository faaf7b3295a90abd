"""A sink: the destination of a device's messages. A socket is one, a journal's writer another.

The device calls it on its own thread, without the GIL and without a lock, and asks again if it
could not take a message. For Python, an object's `_mq_sink()` returns a capsule named "mqcore.sink"
with a `Sink*`, valid as long as the object lives.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec

cdef enum:
    SINK_ABI = 3
    SINK_TOPIC = 255          # bytes of a topic at most

cdef struct SinkOps:
    uint32_t abi
    # Take whole messages from v, beginning at part `start`. *done is the part after the last one
    # taken. The sink owns taken handles, the caller the others. MQ_OK: all; MQ_AGAIN or MQ_FULL:
    # not now; MQ_DROPPED: the last one taken is a duplicate of a stored message, and the caller
    # counts it; anything else: the message at *done is refused permanently, and the caller drops
    # and counts it.
    int (*take)(void* self, MsgVec* v, size_t start, size_t* done) noexcept nogil
    # 1 if a message would be taken now. Called before a source is read, so that back-pressure
    # reaches it.
    int (*ready)(void* self) noexcept nogil
    # Returns n: all messages up to the n-th are durable (a socket: written to the kernel). May be
    # NULL.
    int64_t (*durable)(void* self) noexcept nogil
    # -- NULL for a socket ---------------------------------------------------------------------
    # Take one message, parts[0..n), and report its offset, durable or not yet. MQ_OK: the parts are
    # closed. MQ_DROPPED: closed, too, because the message is already stored, at *offset (-1: no
    # longer known). MQ_FULL: not now. MQ_INVALID: never. MQ_GONE: never, because its sequence
    # number is too old to decide. MQ_STATE: never, because another message has its sequence number.
    # MQ_CLOSED: never, because a newer life of its producer has begun, which is in *offset.
    int (*place)(void* self, Msg* parts, size_t n, int64_t* offset,
                 uint32_t* partition) noexcept nogil
    # Make everything taken durable; 0 or an errno. May block for a long time.
    int (*commit)(void* self) noexcept nogil
    # The errno that prevents further messages until an operator helps (disk full); 0: none.
    int (*error)(void* self) noexcept nogil
    # The topic that this message would be stored in, valid until the sink's next call; *size is
    # its length. NULL, or more than SINK_TOPIC bytes: the message has none, and is refused. As a
    # member NULL: the sink has but one topic.
    const uint8_t* (*topic)(void* self, Msg* parts, size_t n, size_t* size) noexcept nogil

cdef struct Sink:
    const SinkOps* ops
    void* self
