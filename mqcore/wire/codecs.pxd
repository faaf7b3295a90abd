"""The codecs by name, as filters ask for them and `wire=` will."""

from mqcore.wire.codec cimport CodecOps

cdef const CodecOps* codec_find(const char* name) noexcept nogil  # NULL: there is none
