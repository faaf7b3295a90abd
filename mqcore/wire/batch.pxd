"""What an engine does with a batch: gather it for a write, count what was written, and take back
the rest when the link is dead. The holder of the engine's lease calls these; no I/O here.
"""

from libc.stdint cimport int64_t

from mqcore.base.includes cimport iovec
from mqcore.base.message cimport MsgVec
from mqcore.wire.codec cimport Batch, Codec

# Real pointers of what is not yet sent, at most cap pieces, from the middle of one if need be. How
# many. Valid until the next encode or reset of b.
cdef int batch_gather(const Batch* b, iovec* out, int cap) noexcept nogil
# The kernel has taken n more bytes: moves `sent`, and `done` along `ends`. The batch stays as it is
# until batch_reset, which is due when sent == total.
cdef void batch_advance(Batch* b, size_t n) noexcept nogil
# Application messages whose last byte was in this batch and has been taken.
cdef int64_t batch_msgs_done(const Batch* b) noexcept nogil
# An application message was begun but is not completely sent, in this batch or since an earlier
# one. If the link is dead, it is lost.
cdef bint batch_half_sent(const Batch* b, const Codec* codec) noexcept nogil
# The encoder stopped in the middle of a message: its remaining parts are still in the pipe. If the
# link dies now there are two cases. batch_cut: the message was partly sent, so the rest, up to the
# part without MSG_MORE, must be discarded. Else batch_unsent returns its first parts, last of all,
# and the rest in the pipe continues them.
cdef bint batch_open(const Codec* codec) noexcept nogil
cdef bint batch_cut(const Batch* b, const Codec* codec) noexcept nogil
# Appends the parts of all messages that were not begun to out, in order, control ones left out. The
# batch is unchanged: reset it afterwards. MQ_OK, or MQ_NOMEM with out as it was.
cdef int batch_unsent(const Batch* b, const Codec* codec, MsgVec* out) noexcept nogil
