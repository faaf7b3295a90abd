# distutils: language = c++
"""The message engine of norm://, as defined in mqcore/spi/message_engine.pxd. Its descriptor leads
to the process that runs libnorm (mqcore_norm_process.py), which knows streams and no messages.
mqcore_norm_frames.pxd says how messages lie in streams.

Sending: a packet to that process is filled with whatever messages wait, and leaves when it is full
or nothing more waits. The process tells when all known receivers have what it was given. If nothing
is sent for a while, beats tell receivers the number of the next message.

Receiving: a packet is a piece of one source's stream. The numbers of messages show what was lost.
After something malformed we ask for the next piece with which a message begins.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_data, msg_init_copy, msg_size, vec_clear, vec_fini,
    vec_push,
)
from mqcore.base.slab cimport pool_free, pool_new
from mqcore.base.status cimport MQ_AGAIN, MQ_GONE, MQ_NOMEM, MQ_OK, MQ_UNSUPPORTED
from mqcore.spi.message_engine cimport (
    ENGINE_UNRELIABLE, MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps, native_engine,
)
from mqcore_norm_frames cimport (
    LOST, Reader, Source, Writer, big_endian, put_big_endian, reader_fini, source_feed, source_fini,
    source_kept, source_leave, source_next, writer_beat, writer_begin, writer_busy, writer_fill,
    writer_fini,
)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)

cdef enum:
    PACKET = 32 * 1024        # bytes of a packet, at most
    FRONT = 9                 # bytes of a packet before its piece, when it is sent
    NODE = 5                  # the same, when it is received
    SOURCES = 1024            # that are kept apart; the oldest is replaced
    KEPT_MOST = 64 << 20      # bytes of unfinished messages of all sources, beyond one message, if
                              # max_message_size limits that
    BEAT_FIRST = 200000000    # ns without a message until a beat
    BEAT_LAST = 10000000000   # and between beats at most

cdef struct Norm:
    MessageEngine head
    bint sends
    # sending
    Writer writer
    bint offered              # a packet that the kernel has refused for now
    uint64_t sent             # bytes of pieces that have left
    uint64_t flushed          # of these, those that all known receivers have
    bint replaced             # libnorm's process: a beat tells receivers and it how far we are
    int64_t beat_at           # ns: the next beat; 0: none
    int64_t beat_pause
    # receiving
    uint8_t[PACKET] packet
    Reader reader
    Source** sources
    uint32_t n_sources
    uint64_t clock            # counts packets
    uint64_t kept             # bytes of unfinished messages
    Source* at                # the source whose messages are being read; NULL: none


# -- life ------------------------------------------------------------------------------------------

cdef int norm_start(MessageEngine* self) noexcept nogil:
    cdef Norm* p = <Norm*> self
    p.reader.pool = self.pool
    p.reader.most = self.max_message_size
    return MQ_OK


cdef void norm_fini(MessageEngine* self) noexcept nogil:
    cdef Norm* p = <Norm*> self
    cdef uint32_t i
    for i in range(p.n_sources):
        source_fini(p.sources[i])
        free(p.sources[i])
    free(p.sources)
    reader_fini(&p.reader)
    writer_fini(&p.writer)
    free(p)


cdef int norm_gone(Norm* p) noexcept nogil:
    p.head.reason = b"the process that runs libnorm has ended"
    return MQ_GONE


# -- out -------------------------------------------------------------------------------------------

cdef int norm_send_packet(Norm* p) noexcept nogil:
    """MQ_OK: it has left. MQ_AGAIN; MQ_GONE."""
    cdef Writer* w = &p.writer
    if not p.offered:
        w.packet[0] = c"B" if w.begins else c"P"
        put_big_endian(w.packet + 1, 8, p.sent + w.n - FRONT)
    while send(p.head.fd, w.packet, w.n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0:
        if errno == EINTR:
            continue
        p.offered = True
        return MQ_AGAIN if errno == EAGAIN else norm_gone(p)
    p.offered = False
    p.head.held -= w.ends
    p.sent += w.n - FRONT
    p.beat_pause = BEAT_FIRST
    p.beat_at = now_ns() + BEAT_FIRST
    writer_begin(w, FRONT)
    return MQ_OK


cdef int norm_pack(Norm* p) noexcept nogil:
    """The message under way into packets. MQ_OK: nothing of it is left."""
    cdef int rc = norm_send_packet(p) if p.offered else MQ_OK
    while rc == MQ_OK and writer_busy(&p.writer):
        if writer_fill(&p.writer, FRONT):
            rc = norm_send_packet(p)
    return rc


cdef int norm_write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef Norm* p = <Norm*> self
    cdef uint64_t size = 0
    cdef size_t i
    cdef int rc
    if parts[0].flags & MSG_CONTROL:      # sources are not told: subscribers filter
        msg_close(&parts[0])
        return MQ_OK
    for i in range(n):
        size += 4 + msg_size(&parts[i])
    if not p.sends or size > 0x7fffffff:
        return MQ_UNSUPPORTED
    rc = norm_pack(p)
    if rc:
        return rc
    for i in range(n):
        if vec_push(&p.writer.message, &parts[i]):
            p.writer.message.n = 0        # the host has the handles still
            return MQ_NOMEM
    p.writer.size = <uint32_t> size
    self.held += 1
    norm_pack(p)              # what it cannot do, flush reports: the message is ours
    return MQ_OK


cdef int norm_flush(MessageEngine* self) noexcept nogil:
    cdef Norm* p = <Norm*> self
    cdef int rc = norm_pack(p)
    if rc == MQ_OK and p.writer.n > FRONT:
        rc = norm_send_packet(p)
    if rc == MQ_OK:
        self.again = BEAT_FIRST
    return rc


cdef int64_t norm_pending(MessageEngine* self) noexcept nogil:
    cdef Norm* p = <Norm*> self
    cdef int64_t left = <int64_t> (p.sent - p.flushed) + <int64_t> (p.writer.n - FRONT)
    cdef size_t i
    if not p.sends:
        return 0
    for i in range(p.writer.part, p.writer.message.n):
        left += <int64_t> msg_size(&p.writer.message.at[i])
    return left


cdef int norm_beat(Norm* p) noexcept nogil:
    """What a quiet source has to do. MQ_OK, MQ_GONE."""
    cdef int64_t now = now_ns()
    cdef int64_t pause = p.beat_pause
    cdef int rc
    if p.beat_at == 0 or p.offered or writer_busy(&p.writer) or p.writer.n > FRONT:
        return MQ_OK
    if now >= p.beat_at or p.replaced:
        if p.sent == p.flushed or p.replaced:     # else close() would wait for it
            p.replaced = False
            writer_beat(&p.writer)
            rc = norm_send_packet(p)
            if rc == MQ_GONE:
                return rc
        p.beat_pause = min(2 * pause, <int64_t> BEAT_LAST)
        p.beat_at = now + p.beat_pause
    p.head.again = max(p.beat_at - now, <int64_t> 1000000)
    return MQ_OK


# -- in --------------------------------------------------------------------------------------------

cdef Source* norm_room(Norm* p) noexcept nogil:
    """A new source, or the oldest one's place. NULL: no memory."""
    cdef Source* s
    cdef uint32_t oldest = 0
    cdef uint32_t i
    if p.n_sources < SOURCES:
        s = <Source*> calloc(1, sizeof(Source))
        if s != NULL:
            p.sources[p.n_sources] = s
            p.n_sources += 1
        return s
    for i in range(1, p.n_sources):
        if p.sources[i].used < p.sources[oldest].used:
            oldest = i
    s = p.sources[oldest]
    p.kept -= source_kept(s)
    source_leave(s)
    s.asked = False
    memset(&s.order, 0, sizeof(s.order))
    return s


cdef Source* norm_source(Norm* p, uint32_t node) noexcept nogil:
    cdef Source* s
    cdef uint32_t i
    p.clock += 1
    for i in range(p.n_sources):
        s = p.sources[i]
        if s.node == node:
            s.used = p.clock
            if i:             # the one that sends most is found first
                p.sources[i] = p.sources[i - 1]
                p.sources[i - 1] = s
            return s
    s = norm_room(p)
    if s != NULL:
        s.node = node
        s.used = p.clock
    return s


cdef bint norm_ask(Norm* p, Source* s) noexcept nogil:
    """For a piece with which a message begins. False: not now."""
    cdef uint8_t[NODE] packet
    packet[0] = c"S"
    put_big_endian(packet + 1, 4, s.node)
    return send(p.head.fd, packet, NODE, MSG_DONTWAIT | MSG_NOSIGNAL) == NODE


cdef int norm_piece(Norm* p, size_t size) noexcept nogil:
    cdef Source* s
    cdef uint64_t before
    cdef int rc
    if size < NODE:
        return MQ_OK
    s = norm_source(p, <uint32_t> big_endian(p.packet + 1, 4))
    if s == NULL:
        return MQ_NOMEM
    before = source_kept(s)
    if p.packet[0] == c"B":
        source_leave(s)
        s.joined = True
        s.asked = False
    elif not s.joined and not s.asked:
        s.asked = norm_ask(p, s)
    rc = source_feed(s, p.packet + NODE, size - NODE)
    p.kept += source_kept(s) - before
    if rc:
        return rc
    if p.reader.most >= 0 and p.kept > KEPT_MOST + <uint64_t> p.reader.most:
        p.kept -= source_kept(s)
        source_leave(s)
    p.at = s
    return MQ_OK


cdef int norm_fetch(Norm* p) noexcept nogil:
    """The next packet. MQ_OK, MQ_AGAIN, MQ_GONE, MQ_NOMEM."""
    cdef ssize_t size
    cdef uint32_t i
    while True:
        size = recv(p.head.fd, p.packet, PACKET, MSG_DONTWAIT)
        if size >= 0 or errno != EINTR:
            break
    if size < 0:
        return MQ_AGAIN if errno == EAGAIN else norm_gone(p)
    if size == 0:
        return norm_gone(p)
    if p.packet[0] == c"P" or p.packet[0] == c"B":
        return norm_piece(p, <size_t> size)
    if p.packet[0] == c"A" and size == 9:
        p.flushed = min(big_endian(p.packet + 1, 8), p.sent)
    elif p.packet[0] == c"R":             # the streams of the process before it have ended
        p.replaced = p.sends and p.sent > 0
        for i in range(p.n_sources):
            p.kept -= source_kept(p.sources[i])
            source_leave(p.sources[i])
    return MQ_OK


cdef int norm_messages(Norm* p) noexcept nogil:
    """Of the source whose turn it is. MQ_OK, MQ_NOMEM; MQ_AGAIN: `lost` is set."""
    cdef Source* s = p.at
    cdef uint64_t before = source_kept(s)
    cdef int64_t lost = 0
    cdef int rc = source_next(s, &p.reader, &lost, &p.head.malformed)
    p.kept += source_kept(s) - before
    if rc == LOST:
        p.head.lost = lost
        snprintf(p.head.lost_from, sizeof(p.head.lost_from), b"%08x", s.node)
        return MQ_AGAIN
    p.at = NULL
    return rc


cdef size_t norm_deliver(Reader* r, Msg* out, size_t cap) noexcept nogil:
    cdef size_t n = min(cap, r.ready.n - r.at)
    memcpy(out, r.ready.at + r.at, n * sizeof(Msg))
    r.at += n
    if r.at == r.ready.n:
        r.at = 0
        r.ready.n = 0
    return n


cdef int norm_read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Norm* p = <Norm*> self
    cdef int rc = MQ_OK
    n[0] = 0
    while True:
        if p.reader.ready.n:
            n[0] += norm_deliver(&p.reader, out + n[0], cap - n[0])
            if n[0] == cap:
                return MQ_OK
        rc = norm_messages(p) if p.at != NULL else norm_fetch(p)
        if self.lost:
            n[0] += norm_deliver(&p.reader, out + n[0], cap - n[0])
            return MQ_OK
        if rc:
            break
    if rc == MQ_AGAIN and p.sends and norm_beat(p) == MQ_GONE:
        return MQ_GONE
    return rc


cdef MessageEngineOps OPS = MessageEngineOps(
    abi=MESSAGE_ENGINE_ABI,
    flags=ENGINE_UNRELIABLE,
    start=norm_start,
    fini=norm_fini,
    read=norm_read,
    write=norm_write,
    flush=norm_flush,
    pending=norm_pending,
    peek=NULL,
    finish=NULL,
)


def new_engine(bint sends):
    cdef Norm* p = <Norm*> calloc(1, sizeof(Norm))
    if p == NULL:
        raise MemoryError
    p.head.ops = &OPS
    p.head.wake = -1
    p.sends = sends
    try:
        p.sources = <Source**> calloc(SOURCES, sizeof(Source*))
        p.writer.packet = <uint8_t*> calloc(1, PACKET)
        if p.sources == NULL or p.writer.packet == NULL:
            raise MemoryError
        p.writer.cap = PACKET
        writer_begin(&p.writer, FRONT)
        return native_engine(&p.head)
    except BaseException:
        norm_fini(&p.head)
        raise


# -- the layout alone, for tests -------------------------------------------------------------------

def to_pieces(list messages, size_t size, uint64_t number=0) -> list:
    """Messages (lists of parts) as (begins, piece) of at most `size` bytes; None: a beat."""
    cdef Writer w
    cdef Msg part
    cdef uint64_t whole
    pool = pool_new()
    buffer = bytearray(size)
    made = []
    memset(&w, 0, sizeof(w))
    w.packet = buffer
    w.cap = size
    w.number = number
    writer_begin(&w, 0)

    for message in messages:
        if message is None:
            if w.n:
                made.append((bool(w.begins), bytes(buffer[:w.n])))
                writer_begin(&w, 0)
            writer_beat(&w)
            continue
        whole = 0
        for body in message:
            msg_init_copy(&part, pool, <const uint8_t*> <char*> <bytes> body, len(body))
            vec_push(&w.message, &part)
            whole += 4 + len(body)
        w.size = <uint32_t> whole
        while writer_busy(&w):
            if writer_fill(&w, 0):
                made.append((bool(w.begins), bytes(buffer[:w.n])))
                writer_begin(&w, 0)
    if w.n:
        made.append((bool(w.begins), bytes(buffer[:w.n])))
    vec_fini(&w.message)
    pool_free(pool)
    return made


def to_messages(list pieces, int64_t most=-1) -> tuple:
    """(messages, lost, malformed) of one source's (begins, piece)."""
    cdef Reader r
    cdef Source s
    cdef Msg* part
    cdef int64_t lost = 0
    cdef int64_t malformed = 0
    messages, parts, total = [], [], 0
    pool = pool_new()
    memset(&r, 0, sizeof(r))
    memset(&s, 0, sizeof(s))
    r.pool = pool
    r.most = most
    for begins, piece in pieces:
        if begins:
            source_leave(&s)
            s.joined = True
        source_feed(&s, <const uint8_t*> <char*> <bytes> piece, len(piece))
        while source_next(&s, &r, &lost, &malformed) == LOST:
            total += lost
        while r.at < r.ready.n:
            part = &r.ready.at[r.at]
            r.at += 1
            parts.append((<char*> msg_data(part))[:msg_size(part)])
            if not part.flags & MSG_MORE:
                messages.append(parts)
                parts = []
        vec_clear(&r.ready)
        r.at = 0
    source_fini(&s)
    reader_fini(&r)
    pool_free(pool)
    return messages, total, malformed
