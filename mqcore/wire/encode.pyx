"""ZMTP's batch encoder: moves handles from a pipe into one buffer and a gather list.

The loop in `zmtp_encode` is the hottest place of the library: one 16-byte message costs a few
nanoseconds there. It handles what is common - an inline body, no control message, room in the
buffer, framing of 2.0 and later - and leaves everything else to `_put`. Both write to the same
batch, so a message may start in one and end in the other.

A message is begun only below the soft limits (BATCH_MAX, BATCH_MSGS); its further parts may go
beyond, up to the hard ones (BATCH_HARD, BATCH_REFS). So only a very long message, or one of many
large parts, continues in the next batch.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from mqcore.base.cursor cimport store_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE, MSG_INLINE_MAX, MSG_MORE, MSG_REF, MSG_SUBSCRIBE, msg_close, msg_data,
    msg_init, msg_size,
)
from mqcore.base.status cimport MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport ypipe_check_read
from mqcore.base.yqueue cimport yqueue_front, yqueue_pop
from mqcore.wire.codec cimport (
    BATCH_FIRST, BATCH_IOV, BATCH_MAX, BATCH_MSGS, BATCH_REFS, BY_REFERENCE, END_CONTROL,
)
from mqcore.wire.greeting cimport FRAME_COMMAND, FRAME_LONG, FRAMING_V1, Zmtp, interest_name

cdef enum:
    BATCH_HARD = 2 * BATCH_MAX    # a message that was begun may fill the buffer up to here
    HEAD_MAX = 20                 # header and a command's name
    SMALL = 2 + MSG_INLINE_MAX    # what the fast loop writes, whatever the body's size
    ENDS_FIRST = 64
    END_FAR = 0x7fffffff          # an end beyond 2 GiB; always the last one of its batch


cdef int _grow(Batch* b, size_t need) noexcept nogil:
    cdef size_t cap = b.cap if b.cap else BATCH_FIRST
    cdef uint8_t* buf
    while cap < need:
        cap *= 2
    buf = <uint8_t*> realloc(b.buf, cap)
    if buf == NULL:
        return MQ_NOMEM
    b.buf = buf
    b.cap = cap
    return MQ_OK


cdef int _grow_ends(Batch* b) noexcept nogil:
    cdef uint32_t cap = b.cap_ends * 2 if b.cap_ends else ENDS_FIRST
    cdef uint32_t* ends = <uint32_t*> realloc(b.ends, cap * sizeof(uint32_t))
    if ends == NULL:
        return MQ_NOMEM
    b.ends = ends
    b.cap_ends = cap
    return MQ_OK


cdef void _close_piece(Batch* b) noexcept nogil:
    """Put the bytes of buf that are in no piece yet on the gather list: into its last entry if that
    is a piece of buf too. A body by reference always has its header, a piece of buf, before it."""
    cdef size_t covered = 0
    cdef uint32_t last = b.n_iov
    if last and b.ref_of[last - 1] >= 0:
        last -= 1
    if last:
        covered = <size_t> b.iov[last - 1].iov_base + b.iov[last - 1].iov_len
    if covered == b.len:
        return
    if last == b.n_iov and last:
        b.iov[last - 1].iov_len += b.len - covered
        return
    b.iov[b.n_iov].iov_base = <void*> covered
    b.iov[b.n_iov].iov_len = b.len - covered
    b.ref_of[b.n_iov] = -1
    b.n_iov += 1


cdef bint _full(Zmtp* z, Batch* b, bint by_reference) noexcept nogil:
    """No room for one more part. One entry of the gather list is kept for the last piece of buf."""
    if by_reference and (b.n_refs == BATCH_REFS or b.n_iov > BATCH_IOV - 3):
        return True
    if z.mid_out:
        return b.len > <size_t> BATCH_HARD - <size_t> BY_REFERENCE - <size_t> HEAD_MAX
    return b.len >= BATCH_MAX or b.n_ends >= BATCH_MSGS or b.total >= END_FAR


cdef size_t _head(Zmtp* z, uint8_t* at, const Msg* m, size_t size) noexcept nogil:
    """The frame's header, and what a subscription has in front of its topic. Returns its length."""
    cdef const char* name = NULL
    cdef size_t name_size = 0
    cdef uint8_t flags = m.flags & MSG_MORE
    cdef size_t n = 2
    if m.flags & MSG_CONTROL:
        flags = 0
        if z.subscribes or z.head.config.groups:
            flags = FRAME_COMMAND
            name = interest_name(z, m.flags & MSG_SUBSCRIBE)
            name_size = name[0] + 1
        else:
            name = b"\x01" if m.flags & MSG_SUBSCRIBE else b"\x00"
            name_size = 1
        size += name_size
    if z.framing == FRAMING_V1:               # the length counts the flags
        if size < 254:
            at[0] = <uint8_t> (size + 1)
            at[1] = flags
        else:
            at[0] = 0xff
            store_be64(at + 1, size + 1)
            at[9] = flags
            n = 10
    elif size <= 255:
        at[0] = flags
        at[1] = <uint8_t> size
    else:
        at[0] = flags | FRAME_LONG
        store_be64(at + 1, size)
        n = 9
    if name_size:
        memcpy(at + n, name, name_size)
    return n + name_size


cdef void _end(Zmtp* z, Batch* b, uint8_t flags) noexcept nogil:
    cdef uint32_t end = <uint32_t> b.total if b.total < END_FAR else END_FAR
    if flags & MSG_CONTROL:
        end |= <uint32_t> END_CONTROL
    else:
        b.n_msgs += 1
    b.ends[b.n_ends] = end
    b.n_ends += 1


cdef int _put(Zmtp* z, Batch* b, Msg* m) noexcept nogil:
    """Move one part into the batch, of whatever kind. MQ_OK; MQ_FULL, MQ_NOMEM: m is untouched."""
    cdef size_t size = msg_size(m)
    cdef bint by_reference = m.kind == MSG_REF and size >= BY_REFERENCE
    cdef uint8_t flags = m.flags
    cdef size_t need = b.len + HEAD_MAX + (0 if by_reference else size)
    cdef size_t before = b.len
    if _full(z, b, by_reference):
        return MQ_FULL
    if need > b.cap and _grow(b, need):
        return MQ_NOMEM
    if b.n_ends == b.cap_ends and _grow_ends(b):
        return MQ_NOMEM
    b.len += _head(z, b.buf + b.len, m, size)
    if by_reference:
        _close_piece(b)
        b.iov[b.n_iov].iov_base = m.u.ref.data
        b.iov[b.n_iov].iov_len = size
        b.ref_of[b.n_iov] = <int> b.n_refs
        b.n_iov += 1
        b.refs[b.n_refs] = m[0]
        b.n_refs += 1
        b.total += size
    else:
        memcpy(b.buf + b.len, msg_data(m), size)
        b.len += size
        msg_close(m)
    msg_init(m)
    b.total += b.len - before
    z.mid_out = flags & MSG_MORE and not flags & MSG_CONTROL
    if not z.mid_out:
        _end(z, b, flags)
    return MQ_OK


cdef inline void _begin(Zmtp* z, Batch* b) noexcept nogil:
    if b.total == 0:
        z.mid_batch = z.mid_out


cdef int zmtp_encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef Batch* b = batch
    cdef bint plain = z.framing != FRAMING_V1
    cdef uint32_t ended = b.n_ends
    cdef uint32_t n_ends = b.n_ends
    cdef uint64_t bytes_done = 0
    cdef uint64_t bytes_open = z.body_out
    cdef int rc = MQ_OK
    cdef Msg* m
    cdef uint8_t* at
    cdef uint8_t* start       # of what the loop has written but not yet entered in the batch
    cdef uint8_t* edge        # beyond it a small message may not fit, or the batch is full
    cdef uint32_t edge_ends
    cdef size_t lead          # bytes by reference: total is ahead of len by so many
    cdef size_t size
    cdef uint8_t flags
    _begin(z, b)
    at = start = b.buf + b.len
    edge = at                 # the first message goes through _put, which makes room
    edge_ends = 0
    lead = 0
    while ypipe_check_read(src):
        m = yqueue_front(&src.q)
        flags = m.flags
        if m.kind == MSG_INLINE and not flags & MSG_CONTROL and at < edge and n_ends < edge_ends:
            size = m.size8
            at[0] = flags & MSG_MORE
            at[1] = m.size8
            memcpy(at + 2, m.u.inl, MSG_INLINE_MAX)  # a fixed size; what follows covers the excess
            at += 2 + size
            z.mid_out = flags & MSG_MORE
            if not flags & MSG_MORE:
                b.ends[n_ends] = <uint32_t> (<size_t> (at - b.buf) + lead)
                n_ends += 1
        else:
            size = msg_size(m)
            b.total += at - start
            b.len += at - start
            b.n_msgs += n_ends - b.n_ends
            b.n_ends = n_ends
            rc = _put(z, b, m)
            n_ends = b.n_ends
            at = start = b.buf + b.len
            lead = b.total - b.len
            edge = b.buf
            if plain and b.total < END_FAR - BATCH_HARD:
                edge = b.buf + min(b.cap - SMALL, <size_t> BATCH_MAX)
            edge_ends = b.cap_ends    # doubles up to BATCH_MSGS, never beyond
            if rc:
                break
        bytes_open += size
        if not z.mid_out:
            bytes_done += bytes_open
            bytes_open = 0
        yqueue_pop(&src.q)
    b.total += at - start
    b.len += at - start
    b.n_msgs += n_ends - b.n_ends
    b.n_ends = n_ends
    _close_piece(b)
    z.body_out = bytes_open
    msgs[0] = n_ends - ended
    body[0] = <int64_t> bytes_done
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK


cdef int zmtp_encode_one(Codec* self, Batch* batch, Msg* part, bint* done) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef int rc
    _begin(z, batch)
    rc = _put(z, batch, part)
    _close_piece(batch)
    done[0] = rc == MQ_OK
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK
