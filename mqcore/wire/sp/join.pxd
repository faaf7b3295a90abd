"""Messages of several parts in one frame: SP knows no parts. For encoders.

The parts of a body are joined; what stands in front of the body becomes words (words.pxd). What
was joined or changed so is kept in `Batch.kept` as it was, in case the link dies and it goes to
another peer, whose wire may have parts.
"""

from libc.stdint cimport int64_t

from mqcore.base.bytes cimport Bytes
from mqcore.base.message cimport Msg
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport Batch, Codec
from mqcore.wire.encode cimport JoinFn
from mqcore.wire.sp.words cimport Words

cdef struct Join:             # zero-initialise
    Words words
    Bytes front               # scratch: the words of the message that goes out

# JoinFn of encode.pxd. Control handles are swallowed: SP has no way to say them.
cdef int join_message(Join* j, Codec* codec, Batch* b, YPipe* src, size_t* size) noexcept nogil
# CodecOps.encode where no message has a short cut.
cdef int join_all(Codec* codec, Batch* b, YPipe* src, int64_t* msgs, int64_t* body,
                  JoinFn join) noexcept nogil
# Begin a message. Its envelope's words are in j.front, its handles are popped; *body: bytes of the
# parts of its body, of which the pipe's front is the first. *size: as in JoinFn. MQ_DROPPED: it was
# a control handle or cannot be said, and is counted; MQ_NOMEM.
cdef int join_open(Join* j, Codec* codec, Batch* b, YPipe* src, size_t* size,
                   size_t* body) noexcept nogil
# A part as it is goes into b.kept; the handle stays the caller's. MQ_OK, MQ_NOMEM.
cdef int join_keep(Codec* codec, Batch* b, const Msg* m) noexcept nogil
# CodecOps.encode_one.
cdef int join_one(Join* j, Codec* codec, Batch* b, Msg* part, bint* done) noexcept nogil
cdef void join_fini(Join* j) noexcept nogil
