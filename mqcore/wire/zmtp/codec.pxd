"""The ZMTP codec: 3.1, 3.0, 2.0 and 1.0 peers, the mechanisms NULL and PLAIN. See codec.pxd for the
contract."""

from mqcore.wire.codec cimport Codec, CodecOps, Verdict

# Any thread. Filled once when the module is imported.
cdef const CodecOps* zmtp_ops() noexcept nogil
# For codecs whose struct begins with a Zmtp.
cdef int zmtp_judged(Codec* self, const Verdict* verdict) noexcept nogil
cdef void zmtp_fini(Codec* self) noexcept nogil
