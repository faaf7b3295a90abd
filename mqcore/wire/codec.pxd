"""The contract of a protocol codec: bytes in, messages out, and back. No I/O, no clock, no locks.

A codec is one struct that starts with `Codec`. One engine owns it, and the holder of that engine's
lease calls it: nogil, never blocking. Local faults are MQ_NOMEM. Remote faults are MQ_PROTOCOL with
`reason` set to a static text that appears in events(). Any chunking of the input gives the same
frames (tests feed byte by byte).

Life: `start` once; `feed` until it returns MQ_DONE (the handshake). Then `decode` and `encode`.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from mqcore.base.body cimport Body, body_drop
from mqcore.base.bytes cimport Bytes, bytes_fini
from mqcore.base.includes cimport iovec
from mqcore.base.message cimport Msg, MsgVec, msg_close, vec_clear, vec_fini
from mqcore.base.slab cimport Landing, Owner, Pool, owner_release
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.zmtp.security cimport Security

cdef enum:
    CODEC_ABI = 1
    BATCH_IOV = 64            # gather list of one write
    BATCH_REFS = 30           # large bodies sent by reference in one batch
    BATCH_MAX = 256 * 1024    # bytes of one batch, bodies by reference not counted
    BATCH_MSGS = 8192         # messages of one batch
    BY_REFERENCE = 16 * 1024  # bodies from this size on are not copied into the batch
    MASKED_BY_REFERENCE = 128 * 1024  # the same if they must be changed, hence copied, anyway
    BATCH_FIRST = 4096        # the buffer starts small and grows under load
    HEAD_MAX = 20             # header and a command's name, of any wire
    CTL_MAX = 64 * 1024       # a peer that does not read its PONGs gets no more

cdef enum:
    END_CONTROL = 0x80000000  # flag in Batch.ends: not an application message

cdef enum:                    # Codec.asking: the application authenticates the peer, and feed waits
    ASKING_NOT = 0
    ASKING_NEW = 1            # the caller of feed starts the request, and sets ASKING_OPEN
    ASKING_OPEN = 2

cdef struct Verdict:          # the application's result, with ZAP's numbers (RFC 27)
    int code                  # 200: accepted; 300: try later; 400: refused; 500: internal error
    char[128] text            # why not

cdef struct Batch:            # what has been encoded and not yet wholly written
    uint8_t* buf
    size_t cap
    size_t len                # bytes in buf
    uint32_t* ends            # per message: total (all bytes up to its end); END_CONTROL as a flag
    uint32_t n_ends
    uint32_t cap_ends
    size_t total              # bytes in all, references included
    size_t sent               # bytes the kernel has taken
    uint32_t n_msgs           # application messages in it
    uint32_t done             # index in ends: messages before it are wholly sent
    Msg[30] refs              # bodies by reference, released when the batch is wholly sent
    uint32_t n_refs
    uint32_t n_iov
    MsgVec kept               # parts of messages that travel joined or sealed, as they were;
                              # `peer` holds the message's index in ends
    # Gather list. iov_base of a piece of buf holds its offset in buf, since buf may move while it
    # grows; ref_of[i] is -1 for those, else the index in refs.
    iovec[64] iov
    int[64] ref_of

cdef struct HandshakeConfig:  # what we are; lives as long as the socket, read-only
    const char* pattern       # "PUSH"
    int number                # ZMTP socket type number
    const char* peers         # accepted Socket-Type values, spaces between and around: " PULL "
    const uint8_t* routing_id
    size_t routing_id_size
    bint announce_id          # Identity is part of READY (REQ, DEALER, ROUTER)
    const uint8_t* metadata   # further READY properties, already encoded
    size_t metadata_size
    int sp                    # SP protocol number, -1 none
    int sp_peer               # the only one that may answer, -1 none
    bint words                # PAT_WORDS: what stands before an empty part are words on SP
    bint hops                 # PAT_HOPS: a word in front says how many links it has passed
    bint publishes            # PUB, XPUB: an unversioned peer is subscribed to everything
    bint groups               # RADIO, DISH: topics are groups, told by JOIN and LEAVE

cdef struct HandshakeResult:  # owned by the codec, valid until fini
    int major                 # 3, 2 or 1 (ZMTP); 0 for SP
    int minor
    char[24] pattern          # the peer's, as it says; "" if it did not
    Bytes routing_id          # not empty before the handshake: it goes by this, whatever it says
    Bytes metadata            # its READY properties as they came
    char[21] mechanism
    Bytes proof               # what it proved to be: a user's name, a public key of 32 bytes
    Bytes password            # PLAIN's, during authentication

cdef struct Codec:
    const CodecOps* ops
    Pool* pool
    Landing* landing          # memory made ahead for large bodies; NULL: none
    const HandshakeConfig* config
    const Security* security  # NULL: ZMTP's mechanism is NULL, and other wires have none
    int64_t max_message_size  # of one message part as announced by its frame; -1: no limit
    HandshakeResult peer
    Bytes ctl                 # bytes to send before the next batch: greeting, READY, PING, PONG.
                              # the engine takes them from the front and empties it
    const char* reason        # why MQ_PROTOCOL
    char[128] reason_text     # space for a composed reason
    const char* leaving       # during the handshake: why the peer leaves, if it does so now
    int asking                # ASKING_*
    bint either               # it was open whether the peer speaks ZMTP or SP
    uint32_t pings            # PINGs seen, PONGs seen: for heartbeats and round trip times
    uint32_t pongs
    uint32_t late             # messages that were read and belong to nothing any more,
    # messages that the protocol cannot represent; the counting code resets it to 0
    uint32_t untranslated
    uint32_t peer_ttl         # milliseconds: the peer wants to be thought dead after that; 0 none
    # -- decoder: decode.pxd
    bint mid_in               # the last part decoded had MORE
    Body body                 # under way: the input cut it off
    # -- encoder: encode.pxd
    bint mid_out              # the last part encoded had MORE: the rest is still in the pipe
    bint mid_batch            # the batch begins in the middle of a message
    uint64_t body_out         # body bytes of the message under way
    uint32_t skipped          # taken from the pipe and in no batch, so far: said by no byte
    bint masks                # `head` gives masks, or bodies are changed on their way otherwise
    Bytes owed                # commands for the peer that must keep their place among messages:
                              # `pay` says them before the next batch's

cdef struct Frame:            # what a header says that lies in a batch
    size_t header             # its length
    uint64_t size             # of the body behind it
    uint64_t mask             # the body is XORed with these eight bytes, over and over; 0: not
    bint more
    uint8_t hops              # Msg.hops of the part

cdef struct Input:            # bytes that the engine has read, in a slab
    Owner* slab               # bodies may be slices of it: the codec retains it for each
    uint8_t* pos              # moved by decode
    uint8_t* end
    bint copy                 # few bytes in a large slab: copy bodies out instead of slicing

cdef struct CodecOps:
    uint32_t abi
    size_t size
    bint joins                # a message is one frame, however many parts it has
    bint keeps                # what goes into a batch is also kept as it was, in Batch.kept
    const char* name          # "zmtp"
    int (*init)(Codec* self) noexcept nogil                     # memory is zeroed, head filled in
    void (*fini)(Codec* self) noexcept nogil
    # Begin. `listening`: say nothing until the peer's first bytes are seen. `probe`: after a grace
    # period the engine calls start again with listening = 0, and the codec speaks first after all.
    int (*start)(Codec* self, bint listening) noexcept nogil
    # Handshake input. Consumes what it needs (used), appends answers to ctl. MQ_NEED_DATA, MQ_DONE
    # (bytes behind `used` are traffic), MQ_PROTOCOL, MQ_NOMEM.
    int (*feed)(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil
    # Traffic in. Fills out[0..cap) with parts, complete or not; a part that is not the last of its
    # message is flagged MSG_MORE; subscriptions get MSG_SUBSCRIBE or MSG_CANCEL and the bare topic;
    # PING is answered through ctl. MQ_OK: out is full, call again; MQ_NEED_DATA: input used up
    # (the codec keeps a cut-off header itself); MQ_DONE: the peer has ended its stream in order,
    # `reason` says how, and our answer is in ctl. MQ_PROTOCOL: last words may be in ctl. MQ_NOMEM.
    int (*decode)(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil
    # A large body is under way, of *size bytes: where its next ones go, so that the engine reads
    # them there directly; *room = 0 if there is none. `filled` reports them; the part comes with
    # the next decode, whose input is what follows them. MQ_OK, MQ_NOMEM.
    int (*direct)(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil
    void (*filled)(Codec* self, size_t n) noexcept nogil
    # Bytes that have come of a part that is not whole, and are kept for it. NULL: never any.
    uint64_t (*under_way)(const Codec* self) noexcept nogil
    # Traffic out. Moves messages from src into the batch until src is empty or the batch is full,
    # whole messages only unless one alone exceeds it (then it continues at the next call).
    # *msgs and *body: application messages and control ones completed, and their body bytes.
    # MQ_OK, MQ_NOMEM (what was moved is in the batch); MQ_DONE: the message that was taken ends the
    # connection, all before it is written, and nothing is in the batch.
    int (*encode)(Codec* self, Batch* batch, YPipe* src, int64_t* msgs,
                  int64_t* body) noexcept nogil
    # One part, the same way: for lanes that conflate. *done: it fitted (else the handle is
    # untouched).
    int (*encode_one)(Codec* self, Batch* batch, Msg* part, bint* done) noexcept nogil
    # Append a PING to ctl or `owed`. NULL if the protocol has none. ttl in milliseconds.
    int (*ping)(Codec* self, uint32_t ttl) noexcept nogil
    # Into an empty batch: what is in `owed`, unless a message is under way. NULL: never anything.
    # MQ_OK, MQ_NOMEM.
    int (*pay)(Codec* self, Batch* batch) noexcept nogil
    # Handshake: `asking` has its result. Returns as feed does. NULL: never asks.
    int (*judged)(Codec* self, const Verdict* verdict) noexcept nogil
    # This side ends the stream in order: append final bytes to ctl. NULL: the protocol has none.
    int (*finish)(Codec* self) noexcept nogil
    # For encode.pyx. Write to at[0..HEAD_MAX) the header of the frame that `part` becomes, and what
    # stands in front of its body of `size` bytes (a command's name, a count of hops). Returns the
    # length; *mask as in Frame, for the body. Where messages travel joined, the frame of them all:
    # part is the first one of the body.
    size_t (*head)(Codec* self, uint8_t* at, const Msg* part, size_t size,
                   uint64_t* mask) noexcept nogil
    # For batch.pyx: read a header that `head` wrote.
    void (*frame)(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil


cdef inline void codec_fini(Codec* c) noexcept nogil:
    """What the head owns: the last thing a codec's own fini does."""
    body_drop(&c.body)
    bytes_fini(&c.ctl)
    bytes_fini(&c.owed)
    bytes_fini(&c.peer.routing_id)
    bytes_fini(&c.peer.metadata)
    bytes_fini(&c.peer.proof)


cdef inline void batch_reset(Batch* b) noexcept nogil:
    """Everything in it has been written (or given up): release the bodies, keep the memory."""
    cdef uint32_t i
    for i in range(b.n_refs):
        msg_close(&b.refs[i])
    if b.kept.n:
        vec_clear(&b.kept)
    b.len = 0
    b.n_ends = 0
    b.total = 0
    b.sent = 0
    b.n_msgs = 0
    b.done = 0
    b.n_refs = 0
    b.n_iov = 0


cdef inline void batch_fini(Batch* b) noexcept nogil:
    batch_reset(b)
    vec_fini(&b.kept)
    free(b.buf)
    free(b.ends)
    b.buf = NULL
    b.ends = NULL
    b.cap = 0
    b.cap_ends = 0
