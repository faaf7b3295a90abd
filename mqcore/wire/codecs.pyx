"""The codecs by name: see codecs.pxd. One more is a line of _ALL."""

from libc.string cimport strcmp

from mqcore.wire.either cimport either_ipc_ops, either_ops
from mqcore.wire.raw cimport raw_ops
from mqcore.wire.sp.codec cimport sp_ipc_ops, sp_ops
from mqcore.wire.websocket.spws cimport sp_ws_ops
from mqcore.wire.zmtp.codec cimport zmtp_ops
from mqcore.wire.zmtp.curve_codec cimport zmtp_curve_ops
from mqcore.wire.websocket.zws cimport zws_bare_ops, zws_ops

cdef enum:
    CODECS = 10

ctypedef const CodecOps* Ops

cdef Ops[CODECS] _ALL
_ALL[0] = zmtp_ops()
_ALL[1] = zws_ops()
_ALL[2] = zws_bare_ops()
_ALL[3] = sp_ops()
_ALL[4] = sp_ipc_ops()
_ALL[5] = either_ops()
_ALL[6] = either_ipc_ops()
_ALL[7] = sp_ws_ops()
_ALL[8] = zmtp_curve_ops()
_ALL[9] = raw_ops()


cdef const CodecOps* codec_find(const char* name) noexcept nogil:
    cdef int i
    for i in range(CODECS):
        if strcmp(_ALL[i].name, name) == 0:
            return _ALL[i]
    return NULL
