"""Parts into a batch, of whatever kind: see encode.pxd.

A message is begun only below the soft limits (BATCH_MAX, BATCH_MSGS); its further parts may go
beyond, up to the hard ones (BATCH_HARD, BATCH_REFS). So only a very long message, or one of many
large parts, continues in the next batch.
"""

from libc.stdlib cimport realloc

from mqcore.base.message cimport (
    MSG_REF, msg_close, msg_data, msg_init, msg_init_ref,
)
from mqcore.base.slab cimport Owner, SLAB_CLASSES, heap_new, owner_data, slab_capacity, slab_new
from mqcore.base.status cimport MQ_FULL
from mqcore.wire.codec cimport (
    BATCH_FIRST, BATCH_IOV, BATCH_MSGS, BATCH_REFS, BY_REFERENCE, END_CONTROL, HEAD_MAX,
    MASKED_BY_REFERENCE,
)
from mqcore.wire.websocket.mask cimport mask_bytes

cdef enum:
    ENDS_FIRST = 64
    LARGEST = SLAB_CLASSES - 1

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


cdef void encode_close_piece(Batch* b) noexcept nogil:
    """Put the bytes of buf that are in no piece yet on the gather list: into its last entry if that
    is a piece of buf too."""
    cdef size_t covered = 0
    cdef uint32_t last = b.n_iov
    while last and b.ref_of[last - 1] >= 0:
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


cdef bint encode_full(const Codec* c, const Batch* b, bint by_reference) noexcept nogil:
    """No space for one more part? One entry of the gather list is kept for buf's last piece."""
    if by_reference and (b.n_refs == BATCH_REFS or b.n_iov > BATCH_IOV - 3):
        return True
    if c.mid_out:
        return b.len > <size_t> BATCH_HARD - <size_t> MASKED_BY_REFERENCE - <size_t> HEAD_MAX
    return b.len >= BATCH_MAX or b.n_ends >= BATCH_MSGS or b.total >= END_FAR


cdef void encode_end(Batch* b, uint8_t flags) noexcept nogil:
    cdef uint32_t end = <uint32_t> b.total if b.total < END_FAR else END_FAR
    if flags & MSG_CONTROL:
        end |= <uint32_t> END_CONTROL
    else:
        b.n_msgs += 1
    b.ends[b.n_ends] = end
    b.n_ends += 1


cdef int encode_masked(Pool* pool, Msg* m, uint64_t mask) noexcept nogil:
    cdef size_t size = m.u.ref.size
    cdef bint pooled = size <= slab_capacity(LARGEST)
    cdef Owner* owner = slab_new(pool, LARGEST) if pooled else heap_new(pool, size)
    if owner == NULL:
        return MQ_NOMEM
    mask_bytes(owner_data(owner), m.u.ref.data, size, mask)
    msg_close(m)
    msg_init_ref(m, owner, owner_data(owner), size)
    return MQ_OK


cdef bint encode_refers(const Codec* codec, const Msg* m) noexcept nogil:
    cdef size_t least = MASKED_BY_REFERENCE if codec.masks else BY_REFERENCE
    return m.kind == MSG_REF and m.u.ref.size >= least


cdef int encode_reserve(Batch* b, size_t size) noexcept nogil:
    if b.len + size > b.cap and _grow(b, b.len + size):
        return MQ_NOMEM
    if b.n_ends == b.cap_ends and _grow_ends(b):
        return MQ_NOMEM
    return MQ_OK


cdef void encode_body(Batch* b, Msg* m, bint by_reference, uint64_t mask) noexcept nogil:
    cdef size_t size = msg_size(m)
    if by_reference:
        encode_close_piece(b)
        b.iov[b.n_iov].iov_base = m.u.ref.data
        b.iov[b.n_iov].iov_len = size
        b.ref_of[b.n_iov] = <int> b.n_refs
        b.n_iov += 1
        b.refs[b.n_refs] = m[0]
        b.n_refs += 1
    else:
        mask_bytes(b.buf + b.len, msg_data(m), size, mask)
        b.len += size
        msg_close(m)
    msg_init(m)
    b.total += size


cdef int encode_put(Codec* codec, Batch* b, Msg* m) noexcept nogil:
    cdef size_t size = msg_size(m)
    cdef bint by_reference = encode_refers(codec, m)
    cdef uint8_t flags = m.flags
    cdef size_t head
    cdef uint64_t mask = 0
    if encode_full(codec, b, by_reference):
        return MQ_FULL
    if encode_reserve(b, HEAD_MAX + (0 if by_reference else size)):
        return MQ_NOMEM
    head = codec.ops.head(codec, b.buf + b.len, m, size, &mask)
    if by_reference and mask:
        if encode_masked(codec.pool, m, mask):
            return MQ_NOMEM
        mask = 0
    b.len += head
    b.total += head
    encode_body(b, m, by_reference, mask)
    codec.mid_out = flags & MSG_MORE and not flags & MSG_CONTROL
    if not codec.mid_out:
        encode_end(b, flags)
    return MQ_OK


cdef int encode_all(
        Codec* codec, Batch* b, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    return encode_loop(codec, b, src, msgs, body, NULL, MSG_CONTROL, NULL)


cdef int encode_one(Codec* codec, Batch* b, Msg* part, bint* done) noexcept nogil:
    cdef int rc
    encode_begin(codec, b)
    rc = encode_put(codec, b, part)
    encode_close_piece(b)
    done[0] = rc == MQ_OK
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK
