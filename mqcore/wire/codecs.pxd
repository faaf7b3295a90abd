"""The codecs by name, as filters and `wire=` ask for them."""

from mqcore.wire.codec cimport CodecOps

cdef const CodecOps* codec_find(const char* name) noexcept nogil  # NULL: there is none
