"""The codecs by name: see codecs.pxd."""

from libc.string cimport strcmp

from mqcore.wire.zmtp cimport zmtp_ops


cdef const CodecOps* codec_find(const char* name) noexcept nogil:
    if strcmp(name, b"zmtp") == 0:
        return zmtp_ops()
    return NULL
