# distutils: language = c++
"""The message engine of epgm:// and pgm://, as defined in mqcore/spi/message_engine.pxd: a socket
of libpgm, which numbers packets, asks for missing ones and repairs. mqcore_pgm_frames.pxd says how
messages lie in packets.

libpgm has no thread. It acts when it is called: whatever it wants to do later (announce itself,
repeat a request, continue at its rate) it gives as a time, which becomes `again`. Its receiving
descriptor is the host's `fd`; the others are in the engine's epoll set. The one it sends on is
there only while the kernel takes no more.

Sending: a packet is filled with whatever messages wait, and leaves when it is full or nothing more
waits. A packet that the rate limit refuses must be offered again unchanged.

Receiving: a packet at a time, from any source, in order within each. Its memory belongs to libpgm
until the next call. The sequence numbers show what was lost. If a source sends nothing more, what
libpgm has given up (RESET) does.
"""

from libc.errno cimport EBADF, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.unistd cimport dup2

from mqcore.base.arena cimport arena_end
from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_data, msg_init_copy, msg_size, vec_clear, vec_fini,
    vec_push,
)
from mqcore.base.slab cimport Pool, pool_free, pool_new
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_GONE, MQ_NOMEM, MQ_OK, MQ_PROTOCOL, MQ_UNSUPPORTED,
)
from mqcore.spi.message_engine cimport (
    ENGINE_SET, ENGINE_UNRELIABLE, MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps,
    native_engine,
)
from mqcore_pgm_frames cimport (
    NOTHING, OFFSET, Reader, Source, Writer, source_feed, source_fini, source_kept, source_leave,
    writer_begin, writer_busy, writer_close, writer_fill,
)
from mqcore_pgm_library cimport *

cdef enum:
    # packets in one call. With more, libpgm 5.3.128 may read a packet and then meet a lost one in
    # the same call, and delivers nothing of that source any more (pgm_flush_peers_pending)
    BATCH = 1
    SOURCES = 1024            # that are kept apart; the oldest is replaced
    KEPT_MOST = 64 << 20      # bytes of unfinished messages of all sources, beyond one message, if
                              # max_message_size limits that
    LEAST = 200000            # ns: libpgm's timers are not called more often
    IP_MULTICAST_ALL = 49     # linux/in.h
    SILENCE = 500000000       # ns without a packet, after which a loss is reported without it

cdef PgmLibrary LIBRARY

cdef struct Pgm:
    MessageEngine head
    void* sock
    bint sends
    # sending
    Writer writer
    bint offered              # libpgm has refused this packet for now
    bint blocked              # the sending descriptor is in the set
    int send_fd
    int64_t sent              # ns: when the last packet left; 0: none did
    int64_t settle            # ns after it in which close() still waits for requests
    # receiving
    PgmMessage[BATCH] batch
    uint32_t at               # of the batch, the next
    uint32_t got
    Reader reader
    Source** sources
    uint32_t n_sources
    uint64_t clock            # counts packets
    uint64_t kept             # bytes of unfinished messages
    bint doubtful             # libpgm has given something up that no packet has shown yet


# -- life ------------------------------------------------------------------------------------------

cdef int pgm_start(MessageEngine* self) noexcept nogil:
    cdef Pgm* p = <Pgm*> self
    p.reader.pool = self.pool
    p.reader.most = self.max_message_size
    return MQ_OK


cdef void pgm_fini(MessageEngine* self) noexcept nogil:
    cdef Pgm* p = <Pgm*> self
    cdef uint32_t i
    if p.sock != NULL:
        LIBRARY.close(p.sock, p.sends)
    if self.wake >= 0:
        close(self.wake)
    for i in range(p.n_sources):
        source_fini(p.sources[i])
        free(p.sources[i])
    free(p.sources)
    while p.reader.at < p.reader.ready.n:
        msg_close(&p.reader.ready.at[p.reader.at])
        p.reader.at += 1
    p.reader.ready.n = 0
    vec_fini(&p.reader.ready)
    arena_end(&p.reader.arena)
    vec_fini(&p.writer.message)
    free(p.writer.packet)
    free(p)


cdef void pgm_call_later(Pgm* p, int option) noexcept nogil:
    """As long as libpgm says."""
    cdef int64_t ns = max(pgm_get_ns(&LIBRARY, p.sock, option), LEAST)
    if p.head.again == 0 or ns < p.head.again:
        p.head.again = ns


# -- out -------------------------------------------------------------------------------------------

cdef void pgm_watch_out(Pgm* p, bint on) noexcept nogil:
    cdef epoll_event event
    if p.blocked == on:
        return
    p.blocked = on
    memset(&event, 0, sizeof(event))
    event.events = EPOLLOUT
    epoll_ctl(p.head.wake, EPOLL_CTL_ADD if on else EPOLL_CTL_DEL, p.send_fd, &event)


cdef int pgm_send_packet(Pgm* p) noexcept nogil:
    """MQ_OK: it is under way. MQ_AGAIN: the rate limit or the kernel. MQ_GONE."""
    cdef int status
    if not p.offered:
        writer_close(&p.writer)
    status = LIBRARY.send(p.sock, p.writer.packet, p.writer.n, NULL)
    p.offered = status != PGM_IO_NORMAL
    pgm_watch_out(p, status == PGM_IO_WOULD_BLOCK)
    if status == PGM_IO_NORMAL:
        p.head.held -= p.writer.ends
        p.sent = now_ns()
        writer_begin(&p.writer)
        return MQ_OK
    if status == PGM_IO_RATE_LIMITED or status == PGM_IO_WOULD_BLOCK or status == PGM_IO_CONGESTION:
        pgm_call_later(p, PGM_OPT_RATE_REMAIN)
        return MQ_AGAIN
    p.head.reason = b"libpgm does not send any more"
    return MQ_GONE


cdef int pgm_pack(Pgm* p) noexcept nogil:
    """The message under way into packets. MQ_OK: nothing of it is left."""
    cdef int rc = MQ_OK
    if p.offered:
        rc = pgm_send_packet(p)
    while rc == MQ_OK and writer_busy(&p.writer):
        if p.writer.n == p.writer.cap:
            rc = pgm_send_packet(p)
        else:
            writer_fill(&p.writer)
    return rc


cdef int pgm_write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef Pgm* p = <Pgm*> self
    cdef size_t i
    cdef int rc
    if parts[0].flags & MSG_CONTROL:      # sources are not told: subscribers filter
        msg_close(&parts[0])
        return MQ_OK
    if not p.sends:
        return MQ_UNSUPPORTED
    rc = pgm_pack(p)
    if rc:
        return rc
    for i in range(n):
        if vec_push(&p.writer.message, &parts[i]):
            p.writer.message.n = 0        # the host has the handles still
            return MQ_NOMEM
    self.held += 1
    pgm_pack(p)               # what it cannot do, flush reports: the message is ours
    return MQ_OK


cdef int pgm_flush(MessageEngine* self) noexcept nogil:
    cdef Pgm* p = <Pgm*> self
    cdef int rc = pgm_pack(p)
    if rc == MQ_OK and p.writer.n > OFFSET:
        rc = pgm_send_packet(p)
    return rc


cdef int64_t pgm_pending(MessageEngine* self) noexcept nogil:
    """What is not sent. Then, for a while, what receivers may still ask for: after the last packet
    announcements tell them what they should have."""
    cdef Pgm* p = <Pgm*> self
    cdef int64_t left = 0
    cdef size_t i
    for i in range(p.writer.part, p.writer.message.n):
        left += <int64_t> msg_size(&p.writer.message.at[i])
    if p.writer.n > OFFSET:
        left += <int64_t> p.writer.n
    if left == 0 and p.sent and now_ns() - p.sent < p.settle:
        left = 1
    return left


# -- in: sources -----------------------------------------------------------------------------------

cdef void pgm_tell_loss(Pgm* p, uint64_t tsi, int64_t lost) noexcept nogil:
    cdef uint8_t* id = <uint8_t*> &tsi
    p.head.lost = lost
    snprintf(p.head.lost_from, sizeof(p.head.lost_from), b"%u.%u.%u.%u.%u.%u.%u",
             id[0], id[1], id[2], id[3], id[4], id[5], id[6] << 8 | id[7])


cdef Source* pgm_room(Pgm* p) noexcept nogil:
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
    s.known = False
    s.given_up = s.reported = 0
    return s


cdef Source* pgm_source(Pgm* p, const PgmTsi* id) noexcept nogil:
    cdef uint64_t tsi
    cdef Source* s
    cdef uint32_t i
    memcpy(&tsi, id, sizeof(tsi))
    p.clock += 1
    for i in range(p.n_sources):
        s = p.sources[i]
        if s.tsi == tsi:
            s.used = p.clock
            if i:             # the one that sends most is found first
                p.sources[i] = p.sources[i - 1]
                p.sources[i - 1] = s
            return s
    s = pgm_room(p)
    if s != NULL:
        s.tsi = tsi
        s.used = p.clock
    return s


cdef bint pgm_gap(Pgm* p, Source* s, uint32_t sequence) noexcept nogil:
    """Whether packets before this one were lost of which nothing was reported yet. The source joins
    again with its next message then."""
    cdef int64_t gap = <int32_t> (sequence - s.last - 1) if s.known else 0
    cdef int64_t news = gap - s.reported
    s.known = True
    s.last = sequence - 1
    s.given_up = s.reported = 0
    if gap == 0:
        return False
    p.kept -= source_kept(s)
    source_leave(s)
    if news > 0:              # gap below 0: a source that begins again
        pgm_tell_loss(p, s.tsi, news)
    return news > 0


cdef int pgm_given_up(Pgm* p) noexcept nogil:
    """The batch has an empty packet that says how many of a source are lost. The next packet shows
    it exactly; if none comes, pgm_silent reports it."""
    cdef PgmPacket* packet = p.batch[0].packets[0] if p.batch[0].n else NULL
    cdef Source* s
    if packet == NULL:
        return MQ_OK
    s = pgm_source(p, &packet.tsi)
    if s != NULL:
        s.given_up += packet.sequence
        s.since = now_ns()
        p.doubtful = True
        p.kept -= source_kept(s)
        source_leave(s)
    LIBRARY.free(packet)
    return MQ_OK if s != NULL else MQ_NOMEM


cdef bint pgm_silent(Pgm* p) noexcept nogil:
    """Sources that have lost their last packets, and send nothing that would show how many. libpgm
    5.3.128 counts such a packet twice, when it gives up on it and when it leaves the window.
    Whether there is something to report."""
    cdef int64_t now = now_ns()
    cdef Source* s
    cdef int64_t news
    cdef uint32_t i
    p.doubtful = False
    for i in range(p.n_sources):
        s = p.sources[i]
        news = (s.given_up + 1) // 2 - s.reported
        if news <= 0:
            continue
        if now - s.since < SILENCE:
            p.doubtful = True
            continue
        s.reported += news
        p.doubtful = True     # there may be others
        pgm_tell_loss(p, s.tsi, news)
        return True
    if p.doubtful:
        p.head.again = min(p.head.again, SILENCE) if p.head.again else SILENCE
    return False


# -- in: packets -----------------------------------------------------------------------------------

cdef int pgm_fetch(Pgm* p) noexcept nogil:
    """The next batch. MQ_OK, MQ_AGAIN, MQ_GONE, MQ_NOMEM."""
    cdef PgmError* error = NULL
    cdef size_t size = 0
    cdef int status, i
    p.at = 0
    p.got = 0
    for i in range(BATCH):
        p.batch[i].n = 0
    status = LIBRARY.recv(p.sock, p.batch, BATCH, MSG_DONTWAIT | MSG_ERRQUEUE, &size, &error)
    if error != NULL:
        LIBRARY.error_free(error)
    if status == PGM_IO_NORMAL:
        while p.got < BATCH and p.batch[p.got].n:
            p.got += 1
        return MQ_OK
    if status == PGM_IO_RESET:
        return pgm_given_up(p)
    if status == PGM_IO_EOF:
        p.head.reason = b"libpgm has closed the socket"
        return MQ_GONE
    # an error of the network is that of a packet which we have sent: nothing ends because of it
    pgm_call_later(p, PGM_OPT_RATE_REMAIN if status == PGM_IO_RATE_LIMITED
                   else PGM_OPT_TIME_REMAIN)
    return MQ_OK if p.doubtful and pgm_silent(p) else MQ_AGAIN


cdef int pgm_first(Pgm* p, Source* s, const PgmPacket* packet) noexcept nogil:
    """A packet with its two bytes. What came before may be no message; then one that
    begins in this packet may be. MQ_OK, MQ_NOMEM. MQ_UNSUPPORTED: some of it was not a message."""
    cdef const uint8_t* data = <const uint8_t*> packet.data
    cdef const uint8_t* end = data + packet.size
    cdef const uint8_t* border
    cdef int before = MQ_OK
    cdef int rc
    if packet.size < OFFSET:
        source_leave(s)
        return MQ_UNSUPPORTED
    border = data + OFFSET + (<uint32_t> data[0] << 8 | data[1])
    if border == data + OFFSET + NOTHING:
        border = end
    elif border > end:
        source_leave(s)
        return MQ_UNSUPPORTED
    elif not s.joined:
        s.joined = True
        data = border - OFFSET
    if not s.joined:
        return MQ_OK
    before = source_feed(s, &p.reader, data + OFFSET, border)
    if before == MQ_OK and border < end and source_kept(s):
        before = MQ_PROTOCOL  # a message begins inside another one
    if before != MQ_OK:
        source_leave(s)
        s.joined = border < end
    rc = source_feed(s, &p.reader, border, end) if before != MQ_NOMEM and s.joined else before
    if rc != MQ_OK:
        source_leave(s)
    if before == MQ_OK and rc == MQ_OK:
        return MQ_OK
    return MQ_NOMEM if MQ_NOMEM in (before, rc) else MQ_UNSUPPORTED


cdef int pgm_message(Pgm* p, Source* s, const PgmMessage* m) noexcept nogil:
    """The frames of one packet (or of several, if its sender splits them)."""
    cdef PgmPacket* packet
    cdef uint32_t i
    cdef int rc = pgm_first(p, s, m.packets[0])
    for i in range(1, m.n):
        packet = m.packets[i]
        if rc != MQ_OK or not s.joined:
            break
        rc = source_feed(s, &p.reader, <const uint8_t*> packet.data,
                         <const uint8_t*> packet.data + packet.size)
        if rc != MQ_OK:
            source_leave(s)
            rc = MQ_NOMEM if rc == MQ_NOMEM else MQ_UNSUPPORTED
    return rc


cdef int pgm_next(Pgm* p) noexcept nogil:
    """One packet of the batch. MQ_OK, MQ_NOMEM."""
    cdef const PgmMessage* m = &p.batch[p.at]
    cdef Source* s = pgm_source(p, &m.packets[0].tsi)
    cdef uint64_t before
    cdef int rc
    if s == NULL:
        return MQ_NOMEM
    if pgm_gap(p, s, m.packets[0].sequence):
        return MQ_OK          # it comes again
    p.at += 1
    s.last = m.packets[m.n - 1].sequence
    before = source_kept(s)
    rc = pgm_message(p, s, m)
    p.kept += source_kept(s) - before
    if rc == MQ_OK and p.reader.most >= 0 and p.kept > KEPT_MOST + <uint64_t> p.reader.most:
        p.kept -= source_kept(s)
        source_leave(s)
        rc = MQ_UNSUPPORTED
    if rc == MQ_UNSUPPORTED:
        pgm_tell_loss(p, s.tsi, 1)
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK


cdef size_t pgm_deliver(Reader* r, Msg* out, size_t cap) noexcept nogil:
    cdef size_t n = min(cap, r.ready.n - r.at)
    memcpy(out, r.ready.at + r.at, n * sizeof(Msg))
    r.at += n
    if r.at == r.ready.n:
        r.at = 0
        r.ready.n = 0
    return n


cdef int pgm_read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Pgm* p = <Pgm*> self
    cdef int rc = MQ_OK
    n[0] = 0
    while True:
        if p.reader.ready.n:
            n[0] += pgm_deliver(&p.reader, out + n[0], cap - n[0])
            if n[0] == cap:
                return MQ_OK
        rc = pgm_next(p) if p.at < p.got else pgm_fetch(p)
        if rc == MQ_AGAIN:
            arena_end(&p.reader.arena)
        if rc or self.lost:
            return rc


cdef MessageEngineOps OPS = MessageEngineOps(
    abi=MESSAGE_ENGINE_ABI,
    flags=ENGINE_UNRELIABLE | ENGINE_SET,
    start=pgm_start,
    fini=pgm_fini,
    read=pgm_read,
    write=pgm_write,
    flush=pgm_flush,
    pending=pgm_pending,
    peek=NULL,
    finish=NULL,
)


include "mqcore_pgm_open.pxi"
