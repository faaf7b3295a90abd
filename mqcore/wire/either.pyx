"""Either wire: see either.pxd.

The first byte tells: SP's header begins with 00, which no frame of any ZMTP does, and an SP peer
speaks at once. So who has heard nothing within the grace speaks ZMTP, since among its peers are
some that wait for that. The memory is large enough for both codecs; the choice is made by replacing
`ops`, and what had been said or heard until then is nothing.
"""

from libc.stdint cimport uint8_t

from mqcore.base.status cimport MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport CODEC_ABI, Codec, CodecOps, codec_fini
from mqcore.wire.zmtp.greeting cimport Zmtp
from mqcore.wire.sp.codec cimport Sp, sp_ipc_ops, sp_ops
from mqcore.wire.zmtp.codec cimport zmtp_ops


cdef int _become(Codec* self, const CodecOps* ops, bint listening) noexcept nogil:
    cdef int rc = ops.init(self)
    if rc:
        return rc
    self.ops = ops
    return ops.start(self, listening)


cdef int _init(Codec* self) noexcept nogil:
    self.either = True
    return MQ_OK


cdef void _fini(Codec* self) noexcept nogil:
    codec_fini(self)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    return MQ_OK if listening else _become(self, zmtp_ops(), False)


cdef int _hear(Codec* self, const CodecOps* sp, const uint8_t* data, size_t n,
               size_t* used) noexcept nogil:
    cdef int rc
    used[0] = 0
    if n == 0:
        return MQ_NEED_DATA
    rc = _become(self, zmtp_ops() if data[0] else sp, True)
    return rc if rc else self.ops.feed(self, data, n, used)


cdef int _feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    return _hear(self, sp_ops(), data, n, used)


cdef int _feed_ipc(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    return _hear(self, sp_ipc_ops(), data, n, used)


# Nothing else is called before the handshake is over, and then the codec is another.
cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = max(sizeof(Zmtp), sizeof(Sp))
_OPS.name = "either"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = _start
_OPS.feed = _feed

cdef CodecOps _IPC = _OPS
_IPC.name = "either-ipc"
_IPC.feed = _feed_ipc


cdef const CodecOps* either_ops() noexcept nogil:
    return &_OPS


cdef const CodecOps* either_ipc_ops() noexcept nogil:
    return &_IPC
