"""Codecs by name."""

from mqcore.wire.codec cimport CodecOps

# Any thread. "zmtp", "zws", "zws-bare"; NULL if there is none of that name.
cdef const CodecOps* codec_find(const char* name) noexcept nogil
