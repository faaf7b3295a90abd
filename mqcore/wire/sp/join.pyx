"""Joined messages: see join.pxd.

A message is begun only below the batch's soft limits, as any is, and continues in the next batch
only if it alone exceeds the hard ones; its header, which says how long all of it is, stands in the
first. So the sizes of its parts are added up before the first byte is written: the parts of one
message lie in the pipe together or not at all.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.bytes cimport bytes_fini
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, msg_close, msg_copy, msg_init, msg_size, vec_push,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.base.yqueue cimport YCursor, yqueue_after, yqueue_first, yqueue_front, yqueue_pop
from mqcore.wire.codec cimport HEAD_MAX
from mqcore.wire.encode cimport (
    encode_begin, encode_body, encode_close_piece, encode_end, encode_full, encode_put,
    encode_loop, encode_refers, encode_reserve,
)
from mqcore.wire.sp.words cimport words_fini, words_say


cdef size_t _drop(YPipe* src) noexcept nogil:
    """Close the message in front, all handles but the last popped. Its bytes."""
    cdef Msg* m = yqueue_front(&src.q)
    cdef size_t size = 0
    while m.flags & MSG_MORE:
        size += msg_size(m)
        msg_close(m)
        yqueue_pop(&src.q)
        m = yqueue_front(&src.q)
    size += msg_size(m)
    msg_close(m)
    return size


cdef int join_keep(Codec* codec, Batch* b, const Msg* m) noexcept nogil:
    """Of a message that began in an earlier batch nothing can be taken back."""
    cdef Msg kept
    if codec.mid_batch and b.n_ends == 0:
        return MQ_OK
    msg_copy(&kept, m)
    kept.flags &= MSG_MORE
    kept.peer = b.n_ends
    if vec_push(&b.kept, &kept):
        msg_close(&kept)
        return MQ_NOMEM
    return MQ_OK


cdef int join_open(Join* j, Codec* codec, Batch* b, YPipe* src, size_t* size,
                   size_t* body) noexcept nogil:
    cdef YCursor cursor
    cdef Msg* m = yqueue_front(&src.q)
    cdef size_t parts = 0
    cdef size_t i
    cdef int rc
    j.front.n = 0
    rc = MQ_DROPPED if m.flags & MSG_CONTROL else MQ_OK
    if rc == MQ_OK and codec.config.words:
        rc = words_say(&j.words, codec, &src.q, &j.front, &parts)
        if rc == MQ_DROPPED:
            codec.untranslated += 1
    if rc == MQ_DROPPED:
        size[0] = _drop(src)
        codec.skipped += 1
    if rc:
        return rc
    m = yqueue_first(&src.q, &cursor)
    for i in range(parts):
        m = yqueue_after(&cursor)
    body[0] = msg_size(m)
    while m.flags & MSG_MORE:
        m = yqueue_after(&cursor)
        body[0] += msg_size(m)
    for i in range(parts):
        m = yqueue_front(&src.q)
        if join_keep(codec, b, m):
            return MQ_NOMEM
        size[0] += msg_size(m)
        msg_close(m)
        yqueue_pop(&src.q)
    return MQ_OK


cdef int _begin(Join* j, Codec* codec, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    """The header and the words; the envelope's handles are used up. MQ_DROPPED as join_open."""
    cdef size_t body = 0
    cdef uint64_t mask = 0
    cdef size_t n
    cdef int rc = join_open(j, codec, b, src, size, &body)
    if rc:
        return rc
    if encode_reserve(b, HEAD_MAX + j.front.n):
        return MQ_NOMEM
    n = codec.ops.head(codec, b.buf + b.len, yqueue_front(&src.q), j.front.n + body, &mask)
    if j.front.n:
        memcpy(b.buf + b.len + n, j.front.at, j.front.n)
    b.len += n + j.front.n
    b.total += n + j.front.n
    codec.mid_out = True
    return MQ_OK


cdef int _part(Codec* codec, Batch* b, Msg* m) noexcept nogil:
    """A part of the body behind the ones before it. MQ_FULL: the buffer is full."""
    cdef bint by_reference = encode_refers(codec, m)
    if encode_full(codec, b, by_reference):
        return MQ_FULL
    if encode_reserve(b, 0 if by_reference else msg_size(m)) or join_keep(codec, b, m):
        return MQ_NOMEM
    encode_body(b, m, by_reference, 0)
    return MQ_OK


cdef int join_message(Join* j, Codec* codec, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    cdef Msg* m = yqueue_front(&src.q)
    cdef bint more
    cdef size_t n
    cdef int rc
    size[0] = 0
    if not codec.mid_out:
        if not m.flags & (MSG_CONTROL | MSG_MORE) and not codec.config.words:
            n = msg_size(m)
            rc = encode_put(codec, b, m)
            size[0] = n if rc == MQ_OK else 0
            return rc
        if encode_full(codec, b, True):
            return MQ_FULL
        rc = _begin(j, codec, b, src, size)
        if rc:
            return MQ_OK if rc == MQ_DROPPED else rc
    while True:
        m = yqueue_front(&src.q)
        more = m.flags & MSG_MORE
        n = msg_size(m)
        rc = _part(codec, b, m)
        if rc:
            return rc
        size[0] += n
        if not more:
            break
        yqueue_pop(&src.q)
    codec.mid_out = False
    encode_end(b, 0)
    return MQ_OK


cdef int join_all(Codec* codec, Batch* b, YPipe* src, int64_t* msgs, int64_t* body,
                  JoinFn join) noexcept nogil:
    return encode_loop(codec, b, src, msgs, body, NULL, MSG_CONTROL | MSG_MORE, join)


cdef int join_one(Join* j, Codec* codec, Batch* b, Msg* part, bint* done) noexcept nogil:
    cdef int rc = MQ_OK
    encode_begin(codec, b)
    if part.flags & MSG_CONTROL or codec.config.words:    # a lone part has no envelope
        if not part.flags & MSG_CONTROL:
            codec.untranslated += 1
        msg_close(part)
        msg_init(part)
        codec.skipped += 1
    else:
        rc = encode_put(codec, b, part)
        encode_close_piece(b)
    done[0] = rc == MQ_OK
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK


cdef void join_fini(Join* j) noexcept nogil:
    words_fini(&j.words)
    bytes_fini(&j.front)
