"""A batch on its way to the kernel, and back: see batch.pxd.

Taking back walks the encoded frames instead of keeping the handles: a link dies rarely, and handles
kept for it would cost every message. Where frames cannot be read back (joined, sealed), they are
kept all the same. A body by reference is shared, a copied one is copied again,
and so is a masked one.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport (
    MSG_MORE, Msg, msg_close, msg_copy, msg_data, msg_init_copy, vec_push,
)
from mqcore.base.slab cimport Pool
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.wire.codec cimport END_CONTROL, Frame
from mqcore.wire.websocket.mask cimport mask_bytes

cdef enum:
    END_MASK = 0x7fffffff         # an end of just that is 2 GiB or more, and the batch's last


cdef int batch_gather(const Batch* b, iovec* out, int cap) noexcept nogil:
    cdef size_t skip = b.sent
    cdef int n = 0
    cdef uint32_t i
    cdef uint8_t* at
    for i in range(b.n_iov):
        if skip >= b.iov[i].iov_len:
            skip -= b.iov[i].iov_len
            continue
        if n == cap:
            break
        at = <uint8_t*> b.iov[i].iov_base
        if b.ref_of[i] < 0:
            at = b.buf + <size_t> b.iov[i].iov_base
        out[n].iov_base = at + skip
        out[n].iov_len = b.iov[i].iov_len - skip
        skip = 0
        n += 1
    return n


cdef inline size_t _end_of(const Batch* b, uint32_t i) noexcept nogil:
    """Where a message ends: its bytes so far if it is the one under way."""
    cdef uint32_t end = b.ends[i] & END_MASK if i < b.n_ends else END_MASK
    return b.total if end == END_MASK else end


cdef inline bint _reached(const Batch* b, uint32_t i) noexcept nogil:
    cdef uint32_t end = b.ends[i] & END_MASK
    return b.sent == b.total if end == END_MASK else b.sent >= end


cdef void batch_advance(Batch* b, size_t n) noexcept nogil:
    b.sent += n
    while b.done < b.n_ends and _reached(b, b.done):
        b.done += 1


cdef int64_t batch_msgs_done(const Batch* b) noexcept nogil:
    cdef int64_t count = 0
    cdef uint32_t i
    if b.n_msgs == b.n_ends:      # no control messages among them
        return b.done
    for i in range(b.done):
        if not b.ends[i] & <uint32_t> END_CONTROL:
            count += 1
    return count


cdef bint batch_open(const Codec* codec) noexcept nogil:
    return codec.mid_out


cdef bint batch_half_sent(const Batch* b, const Codec* codec) noexcept nogil:
    if b.done < b.n_ends:
        if b.ends[b.done] & <uint32_t> END_CONTROL:
            return False
    elif not codec.mid_out:
        return False
    elif b.total == 0:            # the batch before went out wholly, and ended in mid-message
        return True
    if b.done == 0:
        return b.sent > 0 or codec.mid_batch
    return b.sent > b.ends[b.done - 1] & END_MASK


cdef bint batch_cut(const Batch* b, const Codec* codec) noexcept nogil:
    return b.done == b.n_ends and batch_half_sent(b, codec)


# -- taking back ----------------------------------------------------------------------------------

cdef struct Walk:                 # over the frames of a batch
    uint32_t piece                # of buf, in the gather list
    size_t at                     # offset in buf
    size_t total                  # bytes walked over, references included


cdef int _body(
        Msg* m, Pool* pool, const uint8_t* at, size_t size, uint64_t mask) noexcept nogil:
    """A copy of an encoded body as it was before it was masked."""
    cdef int rc = msg_init_copy(m, pool, at, size)
    if rc == MQ_OK and mask:
        mask_bytes(msg_data(m), msg_data(m), size, mask)
    return rc


cdef int _take(
        const Batch* b, const Codec* codec, Walk* w, bint wanted, bint* more,
        MsgVec* out) noexcept nogil:
    """The next frame; `wanted`: as a part into out."""
    cdef Frame f
    cdef size_t piece_end = <size_t> b.iov[w.piece].iov_base + b.iov[w.piece].iov_len
    cdef size_t copied            # of the body at most so much is in buf
    cdef Msg m
    cdef int rc = MQ_OK
    f.hops = 0
    codec.ops.frame(codec, b.buf + w.at, &f)
    copied = piece_end - w.at - f.header
    more[0] = f.more
    w.total += f.header + f.size
    if f.size <= copied:
        if wanted:
            rc = _body(&m, codec.pool, b.buf + w.at + f.header, f.size, f.mask)
        w.at += f.header + f.size
    else:                         # behind the piece, all of it but a control's prefix
        if wanted and f.mask:
            rc = _body(&m, codec.pool, b.refs[b.ref_of[w.piece + 1]].u.ref.data, f.size, f.mask)
        elif wanted:
            msg_copy(&m, &b.refs[b.ref_of[w.piece + 1]])
        w.piece += 1
        w.at = piece_end
    if w.at == piece_end:
        w.piece += 1              # pieces of buf follow each other without a gap
    if rc or not wanted:
        return rc
    m.flags = MSG_MORE if more[0] else 0
    m.hops = f.hops
    rc = vec_push(out, &m)
    if rc:
        msg_close(&m)
    return rc


cdef void _skip(const Batch* b, Walk* w, size_t upto) noexcept nogil:
    """On to the message that begins at `upto`."""
    cdef size_t step
    cdef size_t end
    while w.total < upto:
        if b.ref_of[w.piece] >= 0:
            w.total += b.iov[w.piece].iov_len
            w.piece += 1
            continue
        end = <size_t> b.iov[w.piece].iov_base + b.iov[w.piece].iov_len
        step = min(end - w.at, upto - w.total)
        w.at += step
        w.total += step
        if w.at == end:
            w.piece += 1


cdef int _take_kept(const Batch* b, size_t* kept, uint32_t message, bint wanted,
                    MsgVec* out) noexcept nogil:
    """The parts of a message as they were before it was joined; `wanted`: into out."""
    cdef Msg m
    while kept[0] < b.kept.n and b.kept.at[kept[0]].peer == message:
        if wanted:
            msg_copy(&m, &b.kept.at[kept[0]])
            m.peer = 0
            if vec_push(out, &m):
                msg_close(&m)
                return MQ_NOMEM
        kept[0] += 1
    return MQ_OK


cdef int batch_unsent(const Batch* b, const Codec* codec, MsgVec* out) noexcept nogil:
    cdef size_t before = out.n
    cdef uint32_t message = 0     # index in ends
    cdef bint begun = codec.mid_batch or b.sent > 0
    cdef bint more = False
    cdef bint wanted
    cdef size_t kept = 0          # index in kept
    cdef Walk w
    cdef int rc = MQ_OK
    w.piece = 0
    w.at = 0
    w.total = 0
    while w.total < b.total:
        wanted = not begun and not (
            message < b.n_ends and b.ends[message] & <uint32_t> END_CONTROL)
        if kept < b.kept.n and b.kept.at[kept].peer == message:
            rc = _take_kept(b, &kept, message, wanted, out)
            more = False
            _skip(b, &w, _end_of(b, message))
        elif codec.ops.keeps and (message == 0 and codec.mid_batch or message == b.n_ends):
            # the rest of a message, without a header; or the beginning of one whose first part was
            # cut in the middle, and is still in the pipe
            _skip(b, &w, _end_of(b, message))
            more = False
        else:
            rc = _take(b, codec, &w, wanted, &more, out)
        if rc:
            while out.n > before:
                out.n -= 1
                msg_close(&out.at[out.n])
            return rc
        if not more:
            message += 1
            begun = w.total < b.sent
    return MQ_OK
