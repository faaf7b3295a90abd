"""What passing time means for an engine: see patience.pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf

from mqcore.base.status cimport MQ_OK
from mqcore.link.engine cimport DOWN_CLOSED, DOWN_PEER, DOWN_RESET, DOWN_TIMEOUT
from mqcore.link.includes cimport (
    FIONREAD, IPPROTO_TCP, SK_MEMINFO_RCVBUF, SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_VARS, SO_MEMINFO,
    SOL_SOCKET, TCP_INFO, getsockopt, ioctl, socklen_t, tcp_info,
)
from mqcore.link.lease cimport (
    E_OUT, ENGINE_ACTIVE, ENGINE_DEAD, ENGINE_DRAINING, ENGINE_HANDSHAKE, ENGINE_NEW,
    ENGINE_READING,
)
from mqcore.link.session cimport session_end
from mqcore.link.stream cimport stream_pending
from mqcore.reactor.io_thread cimport io_now
from mqcore.wire.codec cimport CTL_MAX

cdef enum:
    DRAIN_NS = 1000000000     # how long a link that is discarded waits for the peer's FIN
    QUIET_NS = 10000000000    # how long one that is read waits for the peer's next byte, or its FIN
    READ_NS = 600000000000    # how long it is read at most if the peer sends on and on
    TAKE_NS = 600000000000    # how long it waits for a peer that takes nothing of what was written
    SPACE = 4                 # our kernel has space if it uses less than one part in so many
    MUCH = 16 * 1024          # bytes that wait for the peer
    UNANSWERED = 3            # TCP asked so often: the peer's machine has gone


cdef int64_t patience_period(Engine* e) noexcept nogil:
    """How often this engine looks at the clock."""
    cdef int64_t period = 1000000000
    if e.state == ENGINE_HANDSHAKE or e.state == ENGINE_NEW:
        if e.config.grace and not e.config.connected:
            return e.config.grace
        if e.config.handshake_timeout and e.config.handshake_timeout < period:
            period = e.config.handshake_timeout
    if e.config.heartbeat and e.config.heartbeat < period:
        period = e.config.heartbeat
        if e.config.heartbeat_timeout and e.config.heartbeat_timeout < period:
            period = e.config.heartbeat_timeout
    return period if period > 1000000 else 1000000


cdef void patience_look(Engine* e) noexcept nogil:
    _clock(e)
    if e.state != ENGINE_DEAD:
        e.period.store(patience_period(e))


cdef bint _slow(Engine* e) noexcept nogil:
    """Whether the peer takes no more bytes, so that our PINGs wait behind messages. Its own PINGs
    would tell whether it lives, if they came often enough; its kernel, whether its machine does."""
    cdef tcp_info tcp
    cdef socklen_t size = sizeof(tcp)
    if not e.out_blocked or e.ping_gap <= e.config.heartbeat + e.config.heartbeat_timeout:
        return False
    if getsockopt(e.fd, IPPROTO_TCP, TCP_INFO, &tcp, &size) != 0:
        return True           # a process of this machine; its end would have ended the connection
    return tcp.tcpi_retransmits < UNANSWERED and tcp.tcpi_probes < UNANSWERED


cdef bint _moves(Engine* e) noexcept nogil:
    """Whether bytes that waited for the peer at the last look have been taken since. Few of them
    tell nothing: the kernel of a process that hangs takes them."""
    cdef int64_t before = e.queued
    cdef int64_t taken
    e.queued = stream_pending(e)
    taken = e.link.traffic.bytes_out.load() - e.queued
    taken, e.taken = taken - e.taken, taken
    if e.out_blocked:
        e.queued = max(e.queued, <int64_t> MUCH)
    return before >= MUCH and taken > 0


cdef void _ping(Engine* e, int64_t now) noexcept nogil:
    e.pinged = now
    if e.asked <= e.heard:
        e.asked = now
        e.queued = 0
        e.unsaid = 1
    e.pings_sent += 1
    e.codec.ops.ping(e.codec, <uint32_t> (e.config.heartbeat_ttl // 1000000))


cdef void _heartbeat(Engine* e, int64_t now) noexcept nogil:
    """PING at each interval, also when there is traffic: it tells the peer that we live while its
    own PINGs wait behind messages that we read slowly. The end of a peer that leaves one
    unanswered."""
    cdef char[160] text
    if e.codec.pings != e.pings_seen:
        e.pings_seen = e.codec.pings
        e.ping_gap, e.ping_came = now - e.ping_came, now
    if e.config.heartbeat_timeout and e.asked > e.heard:
        if _moves(e) or _slow(e):
            e.deaf = now
        if now - max(e.asked, e.deaf) >= e.config.heartbeat_timeout:
            snprintf(text, sizeof(text), b"nothing was heard from the peer for %.3g s",
                     <double> (now - e.heard) / 1e9)
            session_end(e, DOWN_TIMEOUT, text, 0)
            return
    if now - e.pinged >= e.config.heartbeat and e.codec.ctl.n + e.codec.owed.n <= CTL_MAX:
        _ping(e, now)


cdef bint patience_overdue(Engine* e) noexcept nogil:
    cdef int64_t now = io_now(e.io)
    cdef int64_t silent = now - e.heard
    if e.state == ENGINE_HANDSHAKE:
        if e.leaves:
            return now - e.born >= QUIET_NS
        return e.config.handshake_timeout and now - e.born >= e.config.handshake_timeout
    if e.state == ENGINE_READING:
        return silent >= QUIET_NS
    return e.state == ENGINE_ACTIVE and (
        e.asked > e.heard and silent >= e.config.heartbeat_timeout
        or e.codec.peer_ttl and silent > <int64_t> e.codec.peer_ttl * 1000000)


cdef void _pardon(Engine* e, int64_t now) noexcept nogil:
    """A side that does not read passes no verdict: at an HWM, and after a time without a turn."""
    cdef int64_t away = now - e.looked - e.period.load()
    if e.in_blocked:
        e.deaf = now
    elif away >= e.period.load():
        e.deaf = now
        e.born += away        # a handshake had so much less time
    e.looked = now


cdef bint _takes(Engine* e, int64_t now) noexcept nogil:
    """Of a link over TCP that our side has ended: whether the peer has still to take what we wrote.
    Without the descriptor, whatever the peer says would make our kernel give that up."""
    cdef tcp_info tcp
    cdef socklen_t size = sizeof(tcp)
    cdef int64_t left = e.pump.pending(e)
    if left == 0 or getsockopt(e.fd, IPPROTO_TCP, TCP_INFO, &tcp, &size) != 0:
        return False
    if e.queued < 0 or left <= e.queued - <int64_t> MUCH:
        e.queued = left
        e.moved = now
    return now - e.moved < TAKE_NS


cdef bint _has_space(Engine* e) noexcept nogil:
    """Whether our kernel has space for what the peer sends, though the socket may not read it."""
    cdef uint32_t[32] memory
    cdef socklen_t size = sizeof(memory)
    if SK_MEMINFO_VARS > 32 or getsockopt(e.fd, SOL_SOCKET, SO_MEMINFO, memory, &size) != 0:
        return False
    return memory[SK_MEMINFO_RMEM_ALLOC] < memory[SK_MEMINFO_RCVBUF] // SPACE


cdef void _settle(Engine* e, int64_t now) noexcept nogil:
    """A peer that sees our end sends no more. What it had sent until then is here once our kernel
    has had space for it long enough; what comes later is of a peer that does not stop."""
    cdef int left = 0
    if not _has_space(e):
        e.spacious_since = 0
    elif e.spacious_since == 0:
        e.spacious_since = now
    elif now - e.spacious_since >= READ_NS and ioctl(e.fd, FIONREAD, &left) == 0:
        e.read_until = min(e.read_until, e.link.traffic.bytes_in.load() + left)


cdef void _look_at_end(Engine* e, int64_t now) noexcept nogil:
    """Of a link that reads on: the peer's end may never come."""
    _settle(e, now)
    if e.in_blocked:
        e.born = now
    elif not _takes(e, now) and (
            now - max(e.born, e.heard) >= QUIET_NS or now - e.born >= READ_NS):
        session_end(e, e.ends_as if e.ends_as >= 0 else DOWN_PEER,
                    b"the peer did not end its side; what it may have sent is lost", 0)


cdef void _clock(Engine* e) noexcept nogil:
    cdef int64_t now = io_now(e.io)
    cdef char[160] text
    _pardon(e, now)
    if e.state == ENGINE_READING:
        _look_at_end(e, now)
    elif e.state == ENGINE_DRAINING:
        if now - e.born >= DRAIN_NS and (e.resets or not _takes(e, now)):
            session_end(e, DOWN_RESET, NULL, 0)
    elif e.state == ENGINE_HANDSHAKE:
        if e.leaves:
            if now - e.born >= QUIET_NS:
                session_end(e, DOWN_CLOSED, NULL, 0)
        elif e.config.handshake_timeout and now - e.born >= e.config.handshake_timeout:
            snprintf(text, sizeof(text), b"the handshake was not complete after %.3g s",
                     <double> (now - e.born) / 1e9)
            session_end(e, DOWN_TIMEOUT, text, 0)
        elif e.config.grace and not e.config.connected and now - e.born >= e.config.grace:
            e.config.grace = 0
            if e.codec.ops.start(e.codec, False) == MQ_OK:
                e.word.fetch_or(E_OUT)
    elif e.codec.peer_ttl and now - max(e.heard, e.deaf) > <int64_t> e.codec.peer_ttl * 1000000:
        session_end(e, DOWN_TIMEOUT,
                    b"the peer was silent for longer than the time to live it announced", 0)
    elif e.config.heartbeat and e.codec.peer.major >= 3:
        _heartbeat(e, now)
