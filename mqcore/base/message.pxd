"""The 64-byte message handle: one part of a message, its body inside or by reference.

Bodies of up to 56 bytes lie in the handle. Larger ones are a slice of an `Owner`. Copying a handle
with `msg_copy` never copies a large body. A handle is *moved* by plain assignment: the source must
then be forgotten (or re-initialised), since both would release the same owner.
A whole message is a run of handles, all but the last flagged MSG_MORE.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from mqcore.base.slab cimport Owner, Pool, owner_release, owner_retain

cdef enum:
    MSG_INLINE_MAX = 56

cdef enum MsgKind:
    MSG_INLINE = 0            # body in u.inl, length in size8 (so a zeroed handle is an empty part)
    MSG_REF = 1               # body is u.ref

cdef enum MsgFlag:
    MSG_MORE = 1              # another part of the same message follows
    MSG_SUBSCRIBE = 2         # control: body is a topic the peer (or we) subscribe to
    MSG_CANCEL = 4            # control: body is a topic no longer wanted
    MSG_ENVELOPE = 8          # routing part in front of the body, hidden from the application (REP)
    MSG_ROUTING_ID = 16       # first part as a ROUTER application sees it: the peer's routing id
    MSG_GROUP = 32            # first part of two: the group that a RADIO's message is for
    MSG_NOTE = 64             # what an XPUB says of a subscription, for the XSUB that forwards it
    MSG_LAST = 128            # such a note: this topic has no subscriber left
    MSG_CONTROL = 6           # mask: neither counted as a message nor delivered as one

cdef struct MsgRef:
    Owner* owner
    uint8_t* data
    size_t size

cdef union MsgBody:
    uint8_t inl[56]
    MsgRef ref

cdef struct Msg:
    uint8_t kind
    uint8_t flags
    uint8_t size8
    uint8_t hops              # links it has passed where the pattern counts them (PAIR1)
    uint32_t peer             # id of the sending peer, set by the pipe's reader; 0 = none
    MsgBody u

cdef struct MsgVec:           # a growable run of handles; zero-initialise; owns its handles
    Msg* at
    size_t n
    size_t cap

# -- any thread, message.pyx; both return a Status ----------------------------------------------
cdef int msg_init_copy(Msg* m, Pool* pool, const uint8_t* data, size_t size) noexcept nogil
# Room for `want` handles in all, if it has less.
cdef int vec_grow(MsgVec* v, size_t want) noexcept nogil
cdef void vec_clear(MsgVec* v) noexcept nogil       # closes the handles, keeps the memory
cdef void vec_fini(MsgVec* v) noexcept nogil        # closes the handles, frees the memory


cdef inline void msg_init(Msg* m) noexcept nogil:
    m.kind = MSG_INLINE
    m.flags = 0
    m.size8 = 0
    m.hops = 0
    m.peer = 0


cdef inline void msg_init_ref(Msg* m, Owner* owner, uint8_t* data, size_t size) noexcept nogil:
    """Takes one reference of owner."""
    m.kind = MSG_REF
    m.flags = 0
    m.size8 = 0
    m.hops = 0
    m.peer = 0
    m.u.ref.owner = owner
    m.u.ref.data = data
    m.u.ref.size = size


cdef inline void msg_init_inline(Msg* m, const uint8_t* data, size_t size) noexcept nogil:
    """size <= MSG_INLINE_MAX"""
    m.kind = MSG_INLINE
    m.flags = 0
    m.size8 = <uint8_t> size
    m.hops = 0
    m.peer = 0
    memcpy(&m.u.inl[0], data, size)


cdef inline uint8_t* msg_data(Msg* m) noexcept nogil:
    return &m.u.inl[0] if m.kind == MSG_INLINE else m.u.ref.data


cdef inline size_t msg_size(const Msg* m) noexcept nogil:
    return m.size8 if m.kind == MSG_INLINE else m.u.ref.size


cdef inline void msg_copy(Msg* dst, const Msg* src) noexcept nogil:
    dst[0] = src[0]
    if src.kind == MSG_REF:
        owner_retain(src.u.ref.owner)


cdef inline void msg_close(Msg* m) noexcept nogil:
    """Release the body; the handle is an empty part afterwards."""
    if m.kind == MSG_REF:
        owner_release(m.u.ref.owner)
    m.kind = MSG_INLINE
    m.size8 = 0
    m.flags = 0


cdef inline int vec_push(MsgVec* v, const Msg* m) noexcept nogil:
    """Moves m in. Status."""
    cdef int rc
    if v.n == v.cap:
        rc = vec_grow(v, v.n + 1)
        if rc:
            return rc
    v.at[v.n] = m[0]
    v.n += 1
    return 0
