"""The raw codec: plain bytes, for STREAM.

Without a handshake the peer is connected at once. The data of one read is a message, limited
to max_message_size; its end has no meaning. Messages are sent unchanged, their parts one after the
other. An empty message ends the connection after everything sent before. The stream has no message
boundaries, so the messages of a batch are kept beside it.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from mqcore.base.message cimport MSG_MORE, Msg, msg_size
from mqcore.base.slab cimport Owner
from mqcore.base.status cimport MQ_DONE, MQ_FULL, MQ_NEED_DATA, MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport YPipe, ypipe_check_read
from mqcore.base.yqueue cimport yqueue_front, yqueue_pop
from mqcore.wire.codec cimport CODEC_ABI, HEAD_MAX, Batch, Codec, Input, codec_fini
from mqcore.wire.decode cimport decode_slice
from mqcore.wire.encode cimport (
    encode_full, encode_loop, encode_put, encode_refers, encode_reserve,
)
from mqcore.wire.sp.join cimport join_keep


cdef int _init(Codec* self) noexcept nogil:
    return MQ_OK


cdef void _fini(Codec* self) noexcept nogil:
    codec_fini(self)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    return MQ_OK


cdef int _feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    used[0] = 0
    return MQ_DONE


# -- in --------------------------------------------------------------------------------------------

cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef size_t most = <size_t> -1
    cdef size_t size
    cdef int rc
    n[0] = 0
    if self.max_message_size >= 0:
        most = max(self.max_message_size, <int64_t> 1)
    while n[0] < cap:
        size = min(<size_t> (input.end - input.pos), most)
        if size == 0:
            return MQ_NEED_DATA
        rc = decode_slice(&out[n[0]], self.pool, input.pos, size, owner)
        if rc:
            return rc
        input.pos += size
        n[0] += 1
    return MQ_OK


cdef int _direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil:
    room[0] = 0
    return MQ_OK


# -- out -------------------------------------------------------------------------------------------

cdef inline bint _ends(const Codec* self, const Msg* m) noexcept nogil:
    """Of several parts some may be empty, of one not."""
    return not self.mid_out and not m.flags & MSG_MORE and msg_size(m) == 0


cdef size_t _head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    mask[0] = 0
    return 0


cdef int _part(Codec* self, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    """JoinFn of encode.pxd, for one part."""
    cdef Msg* m = yqueue_front(&src.q)
    cdef bint by_reference = encode_refers(self, m)
    cdef size_t n = msg_size(m)
    cdef int rc
    size[0] = 0
    if _ends(self, m) or encode_full(self, b, by_reference):
        return MQ_FULL
    if encode_reserve(b, HEAD_MAX + (0 if by_reference else n)) or join_keep(self, b, m):
        return MQ_NOMEM
    rc = encode_put(self, b, m)
    if rc == MQ_OK:
        size[0] = n
    return rc


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    cdef int rc = encode_loop(self, batch, src, msgs, body, NULL, 0, _part)
    if rc or batch.total or not ypipe_check_read(src) or not _ends(self, yqueue_front(&src.q)):
        return rc
    yqueue_pop(&src.q)
    msgs[0] = 1
    return MQ_DONE


# -- the table -------------------------------------------------------------------------------------
# No lane of its pattern conflates, so no part is encoded alone; nothing is pinged, owed or judged.

cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Codec)
_OPS.joins = True
_OPS.keeps = True
_OPS.name = "raw"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = _start
_OPS.feed = _feed
_OPS.decode = _decode
_OPS.direct = _direct
_OPS.encode = _encode
_OPS.head = _head


cdef const CodecOps* raw_ops() noexcept nogil:
    return &_OPS
