"""The batch encoder: moves handles from a pipe into one buffer and a gather list. Any wire.

The loop in `encode_loop` is the hottest place of the library: one 16-byte message costs a few
nanoseconds there. It handles what is common - an inline body, no control message, space in the
buffer - with the codec's own writer, which the C compiler inlines; all else goes to `encode_put`
and the codec's `head`. Both write to the same batch, so a message may start in one and end in the
other. See CodecOps in codec.pxd for the contract.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport MSG_CONTROL, MSG_INLINE, MSG_INLINE_MAX, MSG_MORE, Msg, msg_size
from mqcore.base.slab cimport Pool
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport YPipe, ypipe_check_read
from mqcore.base.yqueue cimport yqueue_front, yqueue_pop
from mqcore.wire.codec cimport BATCH_MAX, Batch, Codec

cdef enum:
    BATCH_HARD = 2 * BATCH_MAX    # a message that was begun may fill the buffer up to here
    SMALL = 16 + MSG_INLINE_MAX   # what a writer of small frames may touch, whatever the body
    END_FAR = 0x7fffffff          # an end beyond 2 GiB; always the last one of its batch

# Writes the frame of an inline part to at[0..SMALL): header and body. Returns its length.
ctypedef size_t (*SmallFn)(Codec* codec, uint8_t* at, const Msg* part) noexcept nogil
# Moves what is left of one message from the pipe into the batch, all but the last handle, which is
# left for the loop to pop. *size: body bytes moved, whatever it returns. MQ_OK: the message is
# complete, or codec.skipped counts it; MQ_FULL, MQ_NOMEM.
ctypedef int (*JoinFn)(Codec* codec, Batch* b, YPipe* src, size_t* size) noexcept nogil

# For the holder of the engine's lease.
# Move one part into the batch, of whatever kind. MQ_OK; MQ_FULL, MQ_NOMEM: m is untouched.
cdef int encode_put(Codec* codec, Batch* b, Msg* m) noexcept nogil
# Enter in the gather list what was written to the buffer.
cdef void encode_close_piece(Batch* b) noexcept nogil
# CodecOps.encode without, and CodecOps.encode_one.
cdef int encode_all(
    Codec* codec, Batch* b, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil
cdef int encode_one(Codec* codec, Batch* b, Msg* part, bint* done) noexcept nogil
# For codecs that join parts. No space for one more part, or one more message?
cdef bint encode_full(const Codec* c, const Batch* b, bint by_reference) noexcept nogil
# Room for `size` bytes in the buffer, and for one more end. MQ_OK, MQ_NOMEM.
cdef int encode_reserve(Batch* b, size_t size) noexcept nogil
# Would this part go by reference?
cdef bint encode_refers(const Codec* codec, const Msg* m) noexcept nogil
# A body by reference may be others' too: on its way out it is masked into memory of ours, which m
# holds then. MQ_OK, MQ_NOMEM.
cdef int encode_masked(Pool* pool, Msg* m, uint64_t mask) noexcept nogil
# Move a part's body behind what is there, reserved by encode_reserve.
cdef void encode_body(Batch* b, Msg* m, bint by_reference, uint64_t mask) noexcept nogil
# The message is complete. flags: its last part's.
cdef void encode_end(Batch* b, uint8_t flags) noexcept nogil


cdef inline void encode_begin(Codec* codec, Batch* b) noexcept nogil:
    if b.total == 0:
        codec.mid_batch = codec.mid_out


cdef inline int encode_loop(Codec* codec, Batch* b, YPipe* src, int64_t* msgs, int64_t* body,
                            SmallFn small, uint8_t special, JoinFn join) noexcept nogil:
    """*msgs and *body are set, not added to: what was *completed*, so a message that begins in one
    batch and ends in the next counts in the next. small NULL: the protocol has no short cut.
    special: flags of parts that must not take it. join NULL: parts are frames of their own."""
    cdef uint32_t ended = b.n_ends
    cdef uint32_t skipped = codec.skipped
    cdef uint32_t n_ends = b.n_ends
    cdef uint64_t bytes_done = 0
    cdef uint64_t bytes_open = codec.body_out
    cdef int rc = MQ_OK
    cdef Msg* m
    cdef uint8_t* at
    cdef uint8_t* start       # of what the loop has written but not yet entered in the batch
    cdef uint8_t* edge        # beyond it a small message may not fit, or the batch is full
    cdef uint32_t edge_ends
    cdef size_t lead          # bytes by reference: total is ahead of len by so many
    cdef size_t size
    cdef uint8_t flags
    encode_begin(codec, b)
    at = start = b.buf + b.len
    edge = at                 # the first message goes through encode_put, which makes space
    edge_ends = 0
    lead = 0
    while ypipe_check_read(src):
        m = yqueue_front(&src.q)
        flags = m.flags
        if m.kind == MSG_INLINE and not flags & special and at < edge and n_ends < edge_ends:
            size = m.size8
            at += small(codec, at, m)
            codec.mid_out = flags & MSG_MORE
            if not flags & MSG_MORE:
                b.ends[n_ends] = <uint32_t> (<size_t> (at - b.buf) + lead)
                n_ends += 1
        else:
            size = msg_size(m)
            b.total += at - start
            b.len += at - start
            b.n_msgs += n_ends - b.n_ends
            b.n_ends = n_ends
            if join != NULL:
                rc = join(codec, b, src, &size)
            else:
                rc = encode_put(codec, b, m)
                if rc:
                    size = 0
            n_ends = b.n_ends
            at = start = b.buf + b.len
            lead = b.total - b.len
            edge = b.buf
            if small != NULL and b.total < END_FAR - BATCH_HARD:
                edge = b.buf + min(b.cap - SMALL, <size_t> BATCH_MAX)
            edge_ends = b.cap_ends    # doubles up to BATCH_MSGS, never beyond
            if rc:
                bytes_open += size
                break
        bytes_open += size
        if not codec.mid_out:
            bytes_done += bytes_open
            bytes_open = 0
        yqueue_pop(&src.q)
    b.total += at - start
    b.len += at - start
    b.n_msgs += n_ends - b.n_ends
    b.n_ends = n_ends
    encode_close_piece(b)
    codec.body_out = bytes_open
    msgs[0] = n_ends - ended + <uint32_t> (codec.skipped - skipped)
    body[0] = <int64_t> bytes_done
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK
