"""The pump of a stream: bytes of a descriptor into messages and back, and helpers for other pumps.

The holder of the engine's lease calls these.
"""

from libc.stdint cimport int64_t, uint32_t

from mqcore.base.includes cimport iovec
from mqcore.link.engine cimport Engine, PumpOps

cdef const PumpOps* stream_pump() noexcept nogil
cdef void stream_read(Engine* e) noexcept nogil
cdef void stream_write(Engine* e) noexcept nogil
cdef int64_t stream_pending(Engine* e) noexcept nogil
# Before the descriptor is closed: counts what had arrived here, and what the peer may not have.
cdef void stream_count_lost(Engine* e) noexcept nogil

# -- in: bytes into a slab, then to the codec ------------------------------------------------------
# Makes e.slab one of this class with nothing in it that is wanted. False: the session has ended.
cdef bint stream_slab(Engine* e, uint32_t klass) noexcept nogil
# Begins a turn of reading: on an I/O thread, which has others to serve, it is short.
cdef void stream_turn(Engine* e) noexcept nogil
# Its bytes are in the kernel, in a filter or in the slab: the rest when the others have had theirs.
cdef void stream_yield(Engine* e) noexcept nogil
cdef void stream_fill(Engine* e, size_t n) noexcept nogil     # n bytes have been put there
cdef int stream_use(Engine* e) noexcept nogil                 # act on them. True: go on reading
# The codec's handshake has said rc (CodecOps.feed). MQ_NEED_DATA, MQ_OK: done; or dead.
cdef int stream_shaken(Engine* e, int rc) noexcept nogil
cdef void stream_ended(Engine* e, ssize_t n) noexcept nogil   # read() gave n, 0 or less: the end
cdef void stream_spare(Engine* e) noexcept nogil              # an idle connection keeps no slab

# -- out: messages into the batch, then its bytes --------------------------------------------------
# Every write of a stream goes through here. A stream's descriptor is a socket; a peer that has left
# gives EPIPE and no SIGPIPE, whatever the application has done with that signal.
cdef ssize_t stream_send(int fd, iovec* iov, int n) noexcept nogil
# A link that reads on has all that its peer may still have sent it: it reads no more.
cdef bint stream_enough(Engine* e) noexcept nogil
# A write failed with this errno. EAGAIN: more when the kernel has space. Else nothing more can be
# written; what the peer sent before is still read.
cdef void stream_unwritten(Engine* e, int number) noexcept nogil
# Control bytes have left the codec, a PING among them perhaps.
cdef void stream_said(Engine* e) noexcept nogil
# Fill an empty batch from the pipe. False: nothing there, or the session has ended.
cdef bint stream_encode(Engine* e) noexcept nogil
# Appends the codec's last words to its ctl. How many bytes of that may be sent now.
cdef size_t stream_goodbye(Engine* e) noexcept nogil
# Control bytes and the batch, as far as unsent, at most BATCH_IOV + 1 pieces. How many.
cdef int stream_gather(Engine* e, iovec* iov) noexcept nogil
cdef void stream_wrote(Engine* e, size_t n) noexcept nogil    # n bytes of the batch are out
