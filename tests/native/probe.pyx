"""A codec driven from Python, byte by byte if need be: for tests, fuzzing and diagnosis.

A `Probe` is one side of a connection without the connection. Bytes go in and come out as `bytes`,
parts as `(flags, body)` pairs, statuses as lower-case words. For one thread at a time; not fast,
except for `measure`, which times the codec itself.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.base.bytes cimport Bytes
from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport iovec
from mqcore.base.message cimport (
    Msg, MsgVec, msg_close, msg_data, msg_init_copy, msg_init_ref, msg_size, vec_fini,
)
from mqcore.base.slab cimport (
    Owner, Pool, heap_new, owner_data, owner_release, pool_free, pool_new,
)
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport YPipe, ypipe_fini, ypipe_flush, ypipe_init, ypipe_write
from mqcore.wire.batch cimport (
    batch_advance, batch_cut, batch_gather, batch_half_sent, batch_msgs_done, batch_open,
    batch_unsent,
)
from mqcore.wire.codec cimport (
    BATCH_IOV, Batch, Codec, CodecOps, HandshakeConfig, Input, Verdict, batch_fini, batch_reset,
)
from mqcore.wire.codecs cimport codec_find
from mqcore.wire.zmtp.security cimport NativeSecurity

from mqcore.wire.zmtp.security import native

MORE = 1
SUBSCRIBE = 2
CANCEL = 4

_STATUS = {MQ_OK: "ok", MQ_NEED_DATA: "need_data", MQ_DONE: "done", MQ_PROTOCOL: "protocol",
           MQ_NOMEM: "nomem"}


cdef bytes _take_bytes(Bytes* b):
    text = b.at[:b.n] if b.n else b""
    b.n = 0
    return text


cdef class Probe:
    """One side of a connection: a codec, its pool, a pipe of outgoing parts and a batch.

    pattern: what we are ("PUSH"); number: its number in ZMTP 2.0; peers: accepted types;
    codec: the protocol, by its name in codecs.pyx; sp and sp_peer: its number and the peer's there;
    words, hops: what stands in front of a body there; security: what mqcore.security has.
    """

    cdef const CodecOps* ops
    cdef Codec* codec
    cdef Pool* pool
    cdef YPipe pipe
    cdef Batch batch
    cdef HandshakeConfig config
    cdef tuple held               # keeps the config's texts alive
    cdef readonly list hops       # Msg.hops of the parts that decode or unsent gave last

    def __cinit__(self, str pattern="PAIR", tuple peers=("PAIR",), *, int number=0,
                  bytes routing_id=b"", bint announce_id=False, bytes metadata=b"",
                  bint publishes=False, bint groups=False, int64_t max_message_size=-1,
                  str codec="zmtp", int sp=-1, int sp_peer=-1, bint words=False,
                  bint hops=False, object security=None):
        name = pattern.encode()
        listed = f" {' '.join(peers)} ".encode()
        cdef NativeSecurity demands = native(security)
        self.held = (name, listed, routing_id, metadata, demands)
        self.config.pattern = name
        self.config.peers = listed
        self.config.number = number
        self.config.routing_id = routing_id
        self.config.routing_id_size = len(routing_id)
        self.config.announce_id = announce_id
        self.config.metadata = metadata
        self.config.metadata_size = len(metadata)
        self.config.publishes = publishes
        self.config.groups = groups
        self.config.sp = sp
        self.config.sp_peer = sp_peer
        self.config.words = words
        self.config.hops = hops
        memset(&self.batch, 0, sizeof(Batch))
        self.ops = codec_find(codec.encode())
        if self.ops == NULL:
            raise ValueError(f"no codec {codec!r}")
        self.pool = pool_new()
        self.codec = <Codec*> calloc(1, self.ops.size)
        if self.pool == NULL or self.codec == NULL or ypipe_init(&self.pipe):
            raise MemoryError
        self.codec.ops = self.ops
        self.codec.pool = self.pool
        self.codec.config = &self.config
        self.codec.max_message_size = max_message_size
        if demands is not None:
            self.codec.security = &demands.c
        if self.codec.ops.init(self.codec):
            raise MemoryError

    def __dealloc__(self):
        if self.codec != NULL:
            self.codec.ops.fini(self.codec)
            free(self.codec)
            batch_fini(&self.batch)
            ypipe_fini(&self.pipe)
        if self.pool != NULL:
            pool_free(self.pool)

    # -- facts ------------------------------------------------------------------------------------

    @property
    def reason(self) -> str | None:
        """Why the last status was "protocol"."""
        return self.codec.reason.decode() if self.codec.reason != NULL else None

    @property
    def peer(self) -> dict:
        """What the handshake found out."""
        peer = &self.codec.peer
        return {
            "version": (peer.major, peer.minor),
            "pattern": peer.pattern.decode(),
            "mechanism": peer.mechanism.decode(),
            "routing_id": peer.routing_id.at[:peer.routing_id.n] if peer.routing_id.n else b"",
            "metadata": peer.metadata.at[:peer.metadata.n] if peer.metadata.n else b"",
        }

    @property
    def heartbeats(self) -> tuple:
        """PINGs seen, PONGs seen, the peer's time to live in milliseconds."""
        return self.codec.pings, self.codec.pongs, self.codec.peer_ttl

    @property
    def dropped(self) -> tuple:
        """Answers that arrived too late, and messages that the protocol cannot represent."""
        return self.codec.late, self.codec.untranslated

    @property
    def memory(self) -> tuple:
        """Owners in use, their bytes, allocations ever made."""
        return (self.pool.live.load(), self.pool.live_bytes.load(),
                self.pool.allocations.load())

    @property
    def control(self) -> bytes:
        """Bytes to be sent before the next batch; taken."""
        return _take_bytes(&self.codec.ctl)

    # -- handshake --------------------------------------------------------------------------------

    def start(self, bint listening=False) -> bytes:
        """Begin; what the codec says at once."""
        self._check(self.codec.ops.start(self.codec, listening))
        return self.control

    def feed(self, bytes data) -> tuple:
        """Handshake input: status, bytes used, answer."""
        cdef size_t used = 0
        cdef const uint8_t* at = data
        rc = self.codec.ops.feed(self.codec, at, len(data), &used)
        return _STATUS[rc], used, self.control

    @property
    def proof(self) -> bytes:
        """What the peer has proven to be: a username, a public key."""
        proof = &self.codec.peer.proof
        return proof.at[:proof.n] if proof.n else b""

    @property
    def asking(self) -> bool:
        """The handshake waits for judge()."""
        return self.codec.asking != 0

    def judge(self, int code, bytes why=b"") -> tuple:
        """The answer to it: status, and ours."""
        cdef Verdict verdict
        memset(&verdict, 0, sizeof(verdict))
        verdict.code = code
        memcpy(verdict.text, <const char*> why, min(len(why), sizeof(verdict.text) - 1))
        rc = self.codec.ops.judged(self.codec, &verdict)
        return _STATUS[rc], self.control

    # -- traffic in -------------------------------------------------------------------------------

    def decode(self, bytes data=b"", *, bint copy=False, size_t cap=64) -> tuple:
        """Traffic input, all of it: the last status and the parts. Memory of exactly its size
        stands for the slab, so that a checker sees a read past the end."""
        cdef Input source
        cdef Msg* out = <Msg*> malloc((cap if cap else 1) * sizeof(Msg))
        cdef size_t n = 0
        cdef size_t i
        cdef int rc = MQ_OK
        parts = []
        self.hops = []
        source.slab = heap_new(self.pool, len(data))
        if out == NULL or source.slab == NULL:
            raise MemoryError
        source.pos = owner_data(source.slab)
        source.end = source.pos + len(data)
        source.copy = copy
        memcpy(source.pos, <const uint8_t*> data, len(data))
        while rc == MQ_OK:
            rc = self.codec.ops.decode(self.codec, &source, out, cap, &n)
            for i in range(n):
                parts.append((out[i].flags, msg_data(&out[i])[:msg_size(&out[i])]))
                self.hops.append(out[i].hops)
                msg_close(&out[i])
        left = source.end - source.pos
        owner_release(source.slab)
        free(out)
        if rc == MQ_NEED_DATA and left:
            raise AssertionError(f"the decoder wants data and left {left} bytes")
        return _STATUS[rc], parts

    @property
    def room(self) -> int:
        """Bytes that could be read straight into a large body under way; 0: none."""
        cdef uint8_t* at = NULL
        cdef size_t room = 0
        cdef uint64_t size = 0
        self._check(self.codec.ops.direct(self.codec, &at, &room, &size))
        return room

    def fill(self, bytes data) -> int:
        """Read into the large body under way; how many bytes it took."""
        cdef uint8_t* at = NULL
        cdef size_t room = 0
        cdef uint64_t size = 0
        self._check(self.codec.ops.direct(self.codec, &at, &room, &size))
        n = min(room, <size_t> len(data))
        if n:
            memcpy(at, <const uint8_t*> data, n)
            self.codec.ops.filled(self.codec, n)
        return n

    # -- traffic out ------------------------------------------------------------------------------

    def put(self, *parts, int flags=0, int hops=0) -> None:
        """Queue one message, unencoded; flags: SUBSCRIBE or CANCEL."""
        cdef Msg m
        for i, part in enumerate(parts):
            self._check(msg_init_copy(&m, self.pool, part, len(part)))
            m.flags = flags | (MORE if i < len(parts) - 1 else 0)
            m.hops = hops
            self._check(ypipe_write(&self.pipe, &m, i == len(parts) - 1))
        ypipe_flush(&self.pipe)

    def put_hollow(self, size_t size) -> None:
        """Queue a message by reference whose body is not there: for accounts of what no test could
        hold in memory. It must not be gathered."""
        cdef Owner* owner = heap_new(self.pool, 1)
        cdef Msg m
        if owner == NULL:
            raise MemoryError
        msg_init_ref(&m, owner, owner_data(owner), size)
        self._check(ypipe_write(&self.pipe, &m, True))
        ypipe_flush(&self.pipe)

    def encode(self) -> tuple:
        """Move what is queued into the batch: messages completed, and their bytes."""
        cdef int64_t msgs = 0
        cdef int64_t body = 0
        if self.codec.owed.n and self.batch.total == 0:
            self._check(self.codec.ops.pay(self.codec, &self.batch))
        self._check(self.codec.ops.encode(self.codec, &self.batch, &self.pipe, &msgs, &body))
        return msgs, body

    def encode_one(self, bytes part, int flags=0) -> bool:
        """One part without the queue; False: the batch has no room for it."""
        cdef Msg m
        cdef bint done = False
        self._check(msg_init_copy(&m, self.pool, part, len(part)))
        m.flags = flags
        self._check(self.codec.ops.encode_one(self.codec, &self.batch, &m, &done))
        if not done:
            msg_close(&m)
        return done

    def gather(self, int cap=BATCH_IOV) -> list:
        """The pieces of the batch that are not sent, as many as fit one write."""
        cdef iovec[BATCH_IOV] iov
        n = batch_gather(&self.batch, iov, min(cap, BATCH_IOV))
        return [(<uint8_t*> iov[i].iov_base)[:iov[i].iov_len] for i in range(n)]

    def advance(self, size_t n) -> dict:
        """The kernel took n bytes. The batch's account."""
        batch_advance(&self.batch, n)
        return self.account

    @property
    def account(self) -> dict:
        return {
            "total": self.batch.total, "sent": self.batch.sent, "messages": self.batch.n_msgs,
            "done": batch_msgs_done(&self.batch),
            "half": bool(batch_half_sent(&self.batch, self.codec)),
            "open": bool(batch_open(self.codec)),
            "cut": bool(batch_cut(&self.batch, self.codec)),
            "buffer": self.batch.len, "references": self.batch.n_refs,
        }

    def unsent(self) -> list:
        """Parts of the messages that were not begun."""
        cdef MsgVec out
        memset(&out, 0, sizeof(out))
        self._check(batch_unsent(&self.batch, self.codec, &out))
        parts = [(out.at[i].flags, msg_data(&out.at[i])[:msg_size(&out.at[i])])
                 for i in range(out.n)]
        self.hops = [out.at[i].hops for i in range(out.n)]
        vec_fini(&out)
        return parts

    def reset(self) -> None:
        """The batch is sent or given up."""
        batch_reset(&self.batch)

    def wire(self) -> bytes:
        """All that is queued, as bytes, batch after batch."""
        out = [self.control]
        while True:
            self.encode()
            if not self.batch.total:
                return b"".join(out)
            out.extend(self.gather())
            self.reset()

    def finish(self) -> bytes:
        """The final bytes of a stream that this side ends; empty if the protocol has none."""
        if self.codec.ops.finish != NULL:
            self._check(self.codec.ops.finish(self.codec))
        return self.control

    def ping(self, uint32_t ttl) -> bytes:
        """A PING with a time to live in milliseconds; empty for peers that know none, and where it
        goes into the next batch."""
        self._check(self.codec.ops.ping(self.codec, ttl))
        return self.control

    cdef void _send_to(self, uint8_t* at) noexcept:
        """The whole batch to memory, as a kernel takes it."""
        cdef iovec[BATCH_IOV] iov
        cdef size_t sent = 0
        cdef int i, parts
        while self.batch.sent < self.batch.total:
            parts = batch_gather(&self.batch, iov, BATCH_IOV)
            sent = 0
            for i in range(parts):
                memcpy(at + sent, iov[i].iov_base, iov[i].iov_len)
                sent += iov[i].iov_len
            at += sent
            batch_advance(&self.batch, sent)

    def measure(self, bytes body, int count, int rounds) -> tuple:
        """Nanoseconds per message that encode and decode take, of `count` waiting messages at a
        time. The batch is copied to a slab in between, as a kernel would."""
        cdef Input source
        cdef Msg[256] out
        cdef size_t n = 0
        cdef size_t i
        cdef int64_t msgs = 0
        cdef int64_t skip = 0
        cdef int64_t encoded = 0
        cdef int64_t decoded = 0
        cdef int64_t start
        cdef int64_t[2] spent = [0, 0]
        cdef int rc
        for _ in range(rounds):
            for _ in range(count):
                self.put(body)
            while True:
                start = now_ns()
                self.codec.ops.encode(self.codec, &self.batch, &self.pipe, &msgs, &skip)
                spent[0] += now_ns() - start
                encoded += msgs
                if self.batch.total == 0:
                    break
                source.slab = heap_new(self.pool, self.batch.total)
                if source.slab == NULL:
                    raise MemoryError
                source.copy = False
                source.pos = owner_data(source.slab)
                source.end = source.pos + self.batch.total
                self._send_to(source.pos)
                rc = MQ_OK
                start = now_ns()
                while rc == MQ_OK:
                    rc = self.codec.ops.decode(self.codec, &source, out, 256, &n)
                    decoded += n
                    for i in range(n):
                        msg_close(&out[i])
                spent[1] += now_ns() - start
                owner_release(source.slab)
                batch_reset(&self.batch)
        return (<double> spent[0] / <double> max(encoded, 1),
                <double> spent[1] / <double> max(decoded, 1))

    cdef int _check(self, int rc) except -1:
        if rc == MQ_NOMEM:
            raise MemoryError
        if rc != MQ_OK:
            raise RuntimeError(f"status {rc}")
        return 0
