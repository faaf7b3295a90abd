"""The codecs by name: see codecs.pxd. One more is a line of _ALL."""

from libc.string cimport strcmp

from mqcore.wire.zmtp cimport zmtp_ops
from mqcore.wire.zws cimport zws_bare_ops, zws_ops

cdef enum:
    CODECS = 3

ctypedef const CodecOps* Ops

cdef Ops[CODECS] _ALL
_ALL[0] = zmtp_ops()
_ALL[1] = zws_ops()
_ALL[2] = zws_bare_ops()


cdef const CodecOps* codec_find(const char* name) noexcept nogil:
    cdef int i
    for i in range(CODECS):
        if strcmp(_ALL[i].name, name) == 0:
            return _ALL[i]
    return NULL
