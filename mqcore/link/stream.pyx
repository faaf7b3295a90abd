"""The pump of a stream: bytes of a descriptor into messages and back. See stream.pxd.

Reading: decode what is buffered, then read, until the kernel has no more, the pipe is at its
HWM, or the turn is over (256 KiB). Writing: control bytes, then batches of the messages
in the pipe, until the kernel takes no more.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset
from posix.unistd cimport read

from mqcore.base.gil cimport holds_gil
from mqcore.base.histogram cimport stamps_take
from mqcore.base.includes cimport iovec, readv
from mqcore.base.message cimport Msg, msg_close
from mqcore.base.slab cimport OWNER_SLAB, owner_data, owner_release, slab_new
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.link.engine cimport DOWN_HANDSHAKE, DOWN_MEMORY, DOWN_PEER, DOWN_PROTOCOL, PumpOps
from mqcore.link.lease cimport (
    E_IN, E_OUT, ENGINE_ACTIVE, ENGINE_DEAD, ENGINE_DRAINING, ENGINE_HANDSHAKE, ENGINE_READING,
)
from mqcore.link.includes cimport (
    FIONREAD, IPPROTO_TCP, MSG_NOSIGNAL, SIOCOUTQ, TCP_CLOSE_WAIT, TCP_CLOSING, TCP_FIN_WAIT1,
    TCP_INFO, TCP_LAST_ACK, getsockopt, ioctl, msghdr, send, sendmsg, socklen_t, tcp_info,
)
from mqcore.link.pipe cimport EVENT_WRITE
from mqcore.link.plane cimport NOTE_ASKS, plane_tell
from mqcore.link.reading cimport reading_adapt, reading_low_water, reading_target
from mqcore.link.session cimport (
    session_attach, session_begun, session_drain, session_end, session_fail, session_publish,
    session_put, session_read_on, session_room, session_tally_codec, session_want,
)
from mqcore.reactor.includes cimport EAGAIN, EINTR, errno, pthread_self
from mqcore.reactor.io_thread cimport io_now, io_turn
from mqcore.spi.lane cimport lane_read, lane_show
from mqcore.wire.batch cimport batch_advance, batch_gather, batch_msgs_done
from mqcore.wire.codec cimport ASKING_NEW, ASKING_OPEN, BATCH_IOV, batch_reset

cdef enum:
    TURN = 256 * 1024
    # Bytes that one call writes with the GIL in hand: twice what a caller is made to write when it
    # batches, so that it rarely leaves a rest. The I/O thread writes the rest.
    INLINE_MAX = 160 * 1024
    PARTS = 64                # decoded at a time
    SLICE_FROM = 8 * 1024     # fewer bytes than this in a slab: bodies are copied out of it
    SLICE_SHARE = 4           # and fewer than this share of it: a slice pins the whole slab


# -- in --------------------------------------------------------------------------------------------

cdef const char* TOO_LARGE = b"a message in parts is larger than max_message_size"


cdef int _decode(Engine* e) noexcept nogil:
    """Decode everything buffered. MQ_NEED_DATA: all used. MQ_OK: stopped at an HWM, or
    the turn is over. Else the connection is dead."""
    cdef Msg[PARTS] parts
    cdef size_t n, room
    cdef int rc = MQ_OK
    cdef int put = MQ_OK
    while rc == MQ_OK:
        room = session_room(e) if e.media == NULL else PARTS
        if room == 0:
            e.in_blocked = 1
            break
        n = 0
        rc = e.codec.ops.decode(e.codec, &e.input, parts, room, &n)
        if n and e.media != NULL:
            session_end(e, DOWN_PROTOCOL, b"a message came beside the message engine", 1)
            return MQ_PROTOCOL
        put = session_put(e, parts, n)
        if put:
            rc = put
        elif rc == MQ_OK and e.turn_end and io_now(e.io) >= e.turn_end:
            e.in_blocked = 1
            stream_yield(e)
            break
    if e.codec.late:
        session_tally_codec(e)
    session_publish(e)
    if rc == MQ_OK or rc == MQ_NEED_DATA:
        if e.codec.pongs != e.pongs_seen:
            e.pongs_seen = e.codec.pongs
            if e.codec.pongs == e.pings_sent:       # else it answers one before the last
                e.link.traffic.rtt.store(io_now(e.io) - e.pinged)
        if e.codec.ops.under_way != NULL and not session_begun(
                e, e.codec.ops.under_way(e.codec)):
            return MQ_PROTOCOL
        return rc
    if rc == MQ_DONE:
        e.pump.finish(e)      # our answer
        session_end(e, DOWN_PEER, e.codec.reason, 0)
    elif rc == MQ_PROTOCOL:
        session_end(e, DOWN_PROTOCOL, TOO_LARGE if put == MQ_PROTOCOL else e.codec.reason, 1)
    else:
        session_end(e, DOWN_MEMORY, b"out of memory while reading", 0)
    return rc


cdef int _shake(Engine* e) noexcept nogil:
    """Handshake input. MQ_NEED_DATA, MQ_OK (done, the rest is traffic), or dead."""
    cdef size_t used = 0
    cdef int rc = e.codec.ops.feed(e.codec, e.input.pos, e.input.end - e.input.pos, &used)
    e.input.pos += used
    return stream_shaken(e, rc)


cdef int stream_shaken(Engine* e, int rc) noexcept nogil:
    if e.codec.asking == ASKING_NEW:
        e.codec.asking = ASKING_OPEN
        plane_tell(e.plane, &e.asks, NOTE_ASKS, e.port.number, e.slot, 0, 0)
    if rc == MQ_NEED_DATA:
        return rc
    if rc != MQ_DONE:
        # let the peer have our last words (an ERROR command, say), as far as the kernel takes them
        e.pump.write(e)
        if e.state != ENGINE_DEAD:
            session_end(e, DOWN_HANDSHAKE, e.codec.reason, 1)
        return MQ_PROTOCOL
    if not session_attach(e):
        session_end(e, DOWN_MEMORY, b"out of memory", 0)
        return MQ_NOMEM
    e.link.traffic.bytes_in.fetch_add(e.input.end - e.input.pos)  # came along with the handshake
    return MQ_OK


cdef bint stream_slab(Engine* e, uint32_t klass) noexcept nogil:
    """A slab to read into: the current one if no slice of it is in use."""
    if e.slab != NULL and (e.slab.refs.load() != 1 or e.slab.klass != klass
                           or e.slab.kind != OWNER_SLAB):
        owner_release(e.slab)
        e.slab = NULL
    if e.slab == NULL:
        e.slab = slab_new(e.plane.pool, klass)
        if e.slab == NULL:
            session_end(e, DOWN_MEMORY, b"out of memory", 0)
            return False
    return True


cdef void stream_spare(Engine* e) noexcept nogil:
    """Nothing is held: an idle connection keeps no slab."""
    if e.slab != NULL and e.input.pos == e.input.end:
        owner_release(e.slab)
        e.slab = NULL
        e.input.pos = NULL
        e.input.end = NULL


cdef int stream_use(Engine* e) noexcept nogil:
    """Act on the bytes held. True: go on reading."""
    cdef int rc
    if e.state == ENGINE_HANDSHAKE:
        rc = _shake(e)
        if rc != MQ_OK:
            return rc == MQ_NEED_DATA
    if e.state == ENGINE_DRAINING:
        e.input.pos = e.input.end
        return True
    return ((e.state == ENGINE_ACTIVE or e.state == ENGINE_READING)
            and _decode(e) == MQ_NEED_DATA)


cdef void stream_fill(Engine* e, size_t n) noexcept nogil:
    """n bytes were read into the slab."""
    e.input.slab = e.slab
    e.input.pos = owner_data(e.slab)
    e.input.end = e.input.pos + n
    e.input.copy = n < SLICE_FROM or n < e.slab.capacity // SLICE_SHARE


cdef void stream_ended(Engine* e, ssize_t n) noexcept nogil:
    """read() gave 0 or failed."""
    if e.state == ENGINE_HANDSHAKE and e.codec.leaving != NULL:
        session_end(e, DOWN_PEER, e.codec.leaving, 0)
    elif n == 0:
        session_end(e, DOWN_PEER, b"the peer closed the connection", 0)
    else:
        session_fail(e, b"the connection broke")


cdef void stream_turn(Engine* e) noexcept nogil:
    e.turn_end = 0
    if pthread_self() == e.io.thread:
        e.turn_end = io_now(e.io) + io_turn(e.io)


cdef void stream_yield(Engine* e) noexcept nogil:
    e.turned = e.turn_end != 0
    e.word.fetch_or(E_IN)


cdef bint stream_enough(Engine* e) noexcept nogil:
    return e.state == ENGINE_READING and e.link.traffic.bytes_in.load() >= e.read_until


cdef void stream_read(Engine* e) noexcept nogil:
    cdef iovec[2] iov
    cdef size_t budget = TURN
    cdef size_t room
    cdef ssize_t n
    stream_turn(e)
    if e.input.pos != e.input.end or e.in_blocked:
        e.in_blocked = 0
        if not stream_use(e):       # what is held comes first: no poller announces it
            return
    while True:
        if stream_enough(e) or not reading_target(e, iov):
            return
        room = iov[0].iov_len
        n = (readv(e.fd, iov, 2) if room     # one piece costs the kernel less without a list
             else read(e.fd, iov[1].iov_base, iov[1].iov_len))
        if n <= 0:
            if n < 0 and errno == EINTR:
                continue
            if n < 0 and errno == EAGAIN:
                if reading_low_water(e, 0):
                    continue
                stream_spare(e)
            elif e.media != NULL and e.state in (ENGINE_ACTIVE, ENGINE_READING):
                e.ended = 1   # what it wrote before is still to be read
            else:
                stream_ended(e, n)
            return
        e.heard = io_now(e.io)
        if e.link != NULL:
            e.link.traffic.reads.fetch_add(1)
            e.link.traffic.bytes_in.fetch_add(n)
        if room:
            e.codec.ops.filled(e.codec, min(room, <size_t> n))
        else:
            reading_adapt(e, n)
        if <size_t> n > room:
            stream_fill(e, n - room)
        if not stream_use(e):
            return
        if <size_t> n < room + iov[1].iov_len and not e.hup and not reading_low_water(e, n):
            stream_spare(e)
            return            # short read: the kernel has no more, the next byte gives an edge
        if budget < <size_t> n or (e.turn_end and e.heard >= e.turn_end):
            stream_yield(e)
            return
        budget -= n


# -- out -------------------------------------------------------------------------------------------

cdef bint stream_encode(Engine* e) noexcept nogil:
    """Fill an empty batch from the pipe. False: nothing there."""
    cdef int64_t msgs = 0, body = 0
    cdef Msg m
    cdef bint done = False
    cdef int rc
    if e.state != ENGINE_ACTIVE or e.media != NULL:
        return False
    if e.codec.owed.n and e.codec.ops.pay(e.codec, &e.batch):
        session_end(e, DOWN_MEMORY, b"out of memory while writing", 0)
        return False
    if e.unsaid and e.codec.ctl.n == 0:
        stream_said(e)        # a PING that was owed begins this batch
    if e.out.conflate:
        if not lane_read(e.out, &m):
            return e.batch.total > 0
        e.codec.ops.encode_one(e.codec, &e.batch, &m, &done)
        if e.codec.untranslated:
            session_tally_codec(e)
        if not done:
            msg_close(&m)
        return done
    rc = e.codec.ops.encode(e.codec, &e.batch, &e.out.q, &msgs, &body)
    if e.codec.untranslated:
        session_tally_codec(e)
    if rc == MQ_NOMEM:
        session_end(e, DOWN_MEMORY, b"out of memory while writing", 0)
        return False
    e.out.r_msgs += msgs
    e.out.r_bytes += body
    if e.out.r_stamps != NULL:
        stamps_take(e.out.r_stamps, e.out.r_msgs)
    if lane_show(e.out):
        e.port.ops.event(e.pipe, EVENT_WRITE)
    if rc == MQ_DONE:
        e.link.traffic.written.fetch_add(msgs)
        session_drain(e)      # else what the peer is still sending would lose it our last words
        return False
    return e.batch.total > 0


cdef int stream_gather(Engine* e, iovec* iov) noexcept nogil:
    """Control bytes first, but never in the middle of a batch."""
    cdef int n = 0
    cdef size_t ctl = e.codec.ctl.n - e.ctl_sent
    if ctl and e.batch.sent == 0:
        iov[0].iov_base = e.codec.ctl.at + e.ctl_sent
        iov[0].iov_len = ctl
        n = 1
    return n + batch_gather(&e.batch, iov + n, BATCH_IOV)


cdef ssize_t stream_send(int fd, iovec* iov, int n) noexcept nogil:
    cdef msghdr message
    if n == 1:
        return send(fd, iov.iov_base, iov.iov_len, MSG_NOSIGNAL)
    memset(&message, 0, sizeof(message))
    message.msg_iov = iov
    message.msg_iovlen = n
    return sendmsg(fd, &message, MSG_NOSIGNAL)


cdef void stream_unwritten(Engine* e, int number) noexcept nogil:
    if e.state == ENGINE_ACTIVE and number != EAGAIN:
        session_read_on(e, e.ends_as, e.ends_why)
        return
    e.out_blocked = 1
    session_want(e)
    if number != EAGAIN:      # of a handshake: what the peer has said shall be read, and its end
        e.hup = 1
        e.word.fetch_or(E_IN)


cdef int _cut(iovec* iov, int n, size_t most) noexcept nogil:
    """Of these pieces, at most so many bytes. How many pieces are left."""
    cdef int i
    for i in range(n):
        if iov[i].iov_len >= most:
            iov[i].iov_len = most
            return i + 1
        most -= iov[i].iov_len
    return n


cdef void _advance(Engine* e, size_t n) noexcept nogil:
    """The kernel took n bytes of what _gather offered."""
    cdef size_t ctl = e.codec.ctl.n - e.ctl_sent
    if ctl and e.batch.sent == 0:
        if n < ctl:
            e.ctl_sent += n
            return
        n -= ctl
        e.codec.ctl.n = 0
        e.ctl_sent = 0
        stream_said(e)
    stream_wrote(e, n)


cdef void stream_said(Engine* e) noexcept nogil:
    """Control bytes have left. The peer's answer to a PING among them is awaited from now on."""
    if e.unsaid:
        e.unsaid = 0
        e.asked = io_now(e.io)


cdef void stream_wrote(Engine* e, size_t n) noexcept nogil:
    """n bytes of the batch are in the kernel."""
    cdef int64_t written
    written = -batch_msgs_done(&e.batch)
    batch_advance(&e.batch, n)
    written += batch_msgs_done(&e.batch)
    if written:
        e.link.traffic.written.fetch_add(written)
        e.message_end = e.link.traffic.bytes_out.load()
    if e.batch.sent == e.batch.total:
        batch_reset(&e.batch)


cdef void stream_write(Engine* e) noexcept nogil:
    cdef iovec[BATCH_IOV + 1] iov
    cdef size_t budget = TURN
    cdef ssize_t n
    cdef int parts
    cdef bint looked = False
    while True:
        if e.batch.total == 0:
            stream_encode(e)
            if e.state == ENGINE_DEAD:
                return
        parts = stream_gather(e, iov)
        if parts == 0:
            return
        if not looked and e.batch.total + TURN - budget > INLINE_MAX:
            looked = True
            if holds_gil():
                e.turned = 1
                budget = max(budget, <size_t> (TURN - INLINE_MAX)) - (TURN - INLINE_MAX)
        if e.turned:
            parts = _cut(iov, parts, budget + 1)
        n = stream_send(e.fd, iov, parts)
        if n < 0:
            if errno == EINTR:
                continue
            stream_unwritten(e, errno)
            return
        if e.link != NULL:
            e.link.traffic.writes.fetch_add(1)
            e.link.traffic.bytes_out.fetch_add(n)
        _advance(e, n)
        if budget < <size_t> n:
            e.word.fetch_or(E_OUT)
            return
        budget -= n


cdef int64_t stream_pending(Engine* e) noexcept nogil:
    cdef int pending = 0
    return pending if ioctl(e.fd, SIOCOUTQ, &pending) == 0 else 0


cdef int64_t _unacked(Engine* e) noexcept nogil:
    """Bytes of messages that were written, that the peer's kernel has not confirmed, and that ours
    gives up with the descriptor. 0 over ipc, where they lie in the peer's own, and where the peer
    has ended its side in order: then our kernel goes on by itself."""
    cdef tcp_info tcp
    cdef socklen_t size = sizeof(tcp)
    cdef int64_t behind = e.behind
    cdef int64_t pending
    if e.message_end == 0 or getsockopt(e.fd, IPPROTO_TCP, TCP_INFO, &tcp, &size) != 0 \
            or tcp.tcpi_state == TCP_CLOSE_WAIT:
        return 0
    pending = stream_pending(e)
    if tcp.tcpi_state in (TCP_FIN_WAIT1, TCP_CLOSING, TCP_LAST_ACK):
        pending -= 1          # our FIN
    if e.link != NULL:
        behind = e.link.traffic.bytes_out.load() - e.message_end
    return max(0, pending - behind)


cdef void stream_count_lost(Engine* e) noexcept nogil:
    cdef int left = 0
    ioctl(e.fd, FIONREAD, &left)
    e.down.unread = e.input.end - e.input.pos + left
    if e.link == NULL:
        e.port.unread.fetch_add(e.down.unread)
        e.port.unacked.fetch_add(_unacked(e))
    else:
        e.link.traffic.unread.fetch_add(e.down.unread)
        e.link.traffic.unacked.fetch_add(_unacked(e))


cdef size_t stream_goodbye(Engine* e) noexcept nogil:
    """The codec's last words, behind what is in ctl. How many bytes of it can be sent now: none in
    the middle of a batch."""
    if e.codec.ops.finish == NULL or e.batch.sent or e.codec.ops.finish(e.codec):
        return 0
    return e.codec.ctl.n - e.ctl_sent


cdef void _finish(Engine* e) noexcept nogil:
    """Where the codec has no last words, a stream's end is the FIN of close()."""
    cdef size_t n = stream_goodbye(e)
    cdef iovec last
    if n and not e.out_blocked:
        last.iov_base = e.codec.ctl.at + e.ctl_sent
        last.iov_len = n
        stream_send(e.fd, &last, 1)  # what does not fit is not said
        e.ctl_sent = e.codec.ctl.n = 0


cdef PumpOps PUMP
PUMP.read = stream_read
PUMP.write = stream_write
PUMP.pending = stream_pending
PUMP.finish = _finish


cdef const PumpOps* stream_pump() noexcept nogil:
    return &PUMP
