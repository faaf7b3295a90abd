"""The pump of a stream behind filters.

In: what is read goes through the filter into a slab, and from there to the codec as any bytes do.
Out: a chunk of the batch goes through the filter into `wire`, and counts as written when all that
it became is in the kernel. If the link breaks in between, the messages of that chunk may have been
received or not: they are counted as half written, never sent again.

An engine whose filter is Python runs on the context's filter thread alone (plane_filters), so no
other connection waits while it waits for the GIL.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.bytes cimport bytes_fini
from mqcore.base.includes cimport iovec
from mqcore.base.slab cimport Owner, owner_data, owner_release, slab_capacity, slab_new
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK
from mqcore.link.engine cimport (
    DOWN_HANDSHAKE, DOWN_MEMORY, DOWN_PEER, DOWN_PROTOCOL, Engine, PumpOps,
)
from mqcore.link.lease cimport (
    E_OUT, ENGINE_ACTIVE, ENGINE_DEAD, ENGINE_HANDSHAKE, ENGINE_READING,
)
from mqcore.link.session cimport session_end
from mqcore.link.stream cimport (
    stream_encode, stream_ended, stream_enough, stream_fill, stream_gather, stream_goodbye,
    stream_pending, stream_said, stream_send, stream_slab, stream_spare, stream_turn,
    stream_unwritten, stream_use, stream_wrote, stream_yield,
)
from mqcore.reactor.includes cimport EAGAIN, EINTR, errno, read
from mqcore.reactor.io_thread cimport io_now
from mqcore.spi.filter_ops cimport FILTER_ENDS
from mqcore.wire.codec cimport BATCH_IOV

cdef enum:
    TURN = 256 * 1024
    CHUNK = 128 * 1024        # of the batch through the filter at a time
    KEEP = 16 * 1024          # an idle connection keeps no more memory than this for its output


cdef const char* CLOSED = b"the peer closed the connection"
cdef const char* CUT_OFF = (
    b"the peer closed the connection without ending its stream: it was cut off, or the peer died")


# -- in --------------------------------------------------------------------------------------------

cdef bint _refuse(Engine* e, int rc) noexcept nogil:
    """The filter cannot go on; its last words (an alert, say) as far as the kernel takes them."""
    cdef int code = DOWN_HANDSHAKE if e.state == ENGINE_HANDSHAKE else DOWN_PROTOCOL
    if rc == MQ_NOMEM:
        session_end(e, DOWN_MEMORY, b"out of memory in a filter", 0)
        return False
    if e.state != ENGINE_READING:
        _send(e)
    if e.state != ENGINE_DEAD:
        session_end(e, code, e.filter.reason, 1)
    return False


cdef inline uint32_t _klass(Engine* e) noexcept nogil:
    """Of the slabs: 64 KiB, or 256 KiB when reads fill those."""
    return 2 if e.klass == 2 else 1


cdef bint _pull(Engine* e, const uint8_t* data, size_t n) noexcept nogil:
    """Bytes through the filter to the codec; with n = 0 what it still has. A filter that expands
    has a turn too: what it has left after that waits inside it. True: go on reading."""
    cdef size_t budget = TURN
    cdef size_t made
    cdef int rc
    while True:
        if not stream_slab(e, _klass(e)):
            return False
        made = 0
        rc = e.filter.ops.decode(e.filter, data, n, owner_data(e.slab), e.slab.capacity, &made,
                                 &e.wire)
        n = 0
        e.filter_more = rc == MQ_OK or rc == MQ_DONE
        if made:
            stream_fill(e, made)
            if not stream_use(e):
                return False
        if rc == MQ_NEED_DATA:
            return True
        if rc == MQ_OK and made > budget:
            stream_yield(e)
            return False
        budget -= min(made, budget)
        if rc == MQ_DONE:
            _finish(e)        # so do we
            session_end(e, DOWN_PEER, b"the peer ended the connection", 0)
            return False
        if rc != MQ_OK:
            return _refuse(e, rc)


cdef void _read_into(Engine* e, Owner* raw) noexcept nogil:
    cdef size_t budget = TURN
    cdef ssize_t n
    while not stream_enough(e):
        n = read(e.fd, owner_data(raw), raw.capacity)
        if n <= 0:
            if n < 0 and errno == EINTR:
                continue
            if n < 0 and errno == EAGAIN:
                stream_spare(e)
            elif n == 0 and not (e.state == ENGINE_HANDSHAKE and e.codec.leaving != NULL):
                session_end(e, DOWN_PEER,
                            CUT_OFF if e.filter.ops.flags & FILTER_ENDS else CLOSED, 0)
            else:
                stream_ended(e, n)
            return
        e.heard = io_now(e.io)
        if e.link != NULL:
            e.link.traffic.reads.fetch_add(1)
            e.link.traffic.bytes_in.fetch_add(n)
        if <size_t> n == raw.capacity:
            e.klass = 2
        elif <size_t> n <= slab_capacity(1):
            e.klass = 1
        if not _pull(e, owner_data(raw), n):
            return
        if <size_t> n < raw.capacity and not e.hup:
            stream_spare(e)
            return            # short read: the kernel has no more, the next byte gives an edge
        if budget < <size_t> n or (e.turn_end and e.heard >= e.turn_end):
            stream_yield(e)
            return
        budget -= n


cdef void _read(Engine* e) noexcept nogil:
    cdef Owner* raw
    stream_turn(e)
    if e.input.pos != e.input.end or e.in_blocked:
        e.in_blocked = 0
        if not stream_use(e):  # what is held comes first: no poller announces it
            return
    if e.filter_more and not _pull(e, NULL, 0):
        return
    raw = slab_new(e.plane.pool, _klass(e))
    if raw == NULL:
        session_end(e, DOWN_MEMORY, b"out of memory", 0)
        return
    _read_into(e, raw)
    owner_release(raw)


# -- out -------------------------------------------------------------------------------------------

cdef bint _chunk(Engine* e) noexcept nogil:
    """The next piece of the output through the filter. False: nothing there, or dead."""
    cdef iovec[BATCH_IOV + 1] iov
    cdef size_t total = 0
    cdef size_t ctl = 0
    cdef int parts, i, rc
    if e.state != ENGINE_ACTIVE and e.state != ENGINE_HANDSHAKE:
        return False
    if e.batch.total == 0:
        stream_encode(e)
        if e.state == ENGINE_DEAD:
            return False
    if e.batch.sent == 0:
        ctl = e.codec.ctl.n - e.ctl_sent
    parts = stream_gather(e, iov)
    for i in range(parts):
        if total + iov[i].iov_len >= CHUNK + ctl:
            iov[i].iov_len = CHUNK + ctl - total
            parts = i + 1
        total += iov[i].iov_len
        if i + 1 == parts:
            break
    if total == 0:
        return False
    e.wire_from = e.wire.n
    rc = e.filter.ops.encode(e.filter, iov, parts, &e.wire)
    if rc:
        _refuse(e, rc)
        return False
    if ctl:                   # control bytes are not counted: the filter owns them now
        e.codec.ctl.n = 0
        e.ctl_sent = 0
        stream_said(e)
    e.wire_mark = e.wire.n
    e.wire_plain = total - ctl
    return True


cdef bint _send(Engine* e) noexcept nogil:
    """What is in `wire`, until the kernel takes no more. True: all of it is out."""
    cdef ssize_t n
    cdef iovec rest
    while e.wire_sent < e.wire.n:
        rest.iov_base = e.wire.at + e.wire_sent
        rest.iov_len = e.wire.n - e.wire_sent
        n = stream_send(e.fd, &rest, 1)
        if n < 0:
            if errno == EINTR:
                continue
            stream_unwritten(e, errno)
            return False
        if e.link != NULL:
            e.link.traffic.writes.fetch_add(1)
            e.link.traffic.bytes_out.fetch_add(n)
        e.wire_sent += n
        if e.wire_plain and e.wire_sent >= e.wire_mark:
            stream_wrote(e, e.wire_plain)
            e.wire_plain = 0
    e.wire.n = 0
    e.wire_sent = 0
    return True


cdef void _write(Engine* e) noexcept nogil:
    cdef size_t budget = TURN
    cdef bint bulk = e.wire.n > KEEP
    while _send(e):
        if budget < CHUNK:
            e.word.fetch_or(E_OUT)
            return
        budget -= CHUNK
        if not _chunk(e):
            break
        bulk = bulk or e.wire.n > KEEP
    if e.wire.n == 0 and e.wire.cap > KEEP and not bulk:
        bytes_fini(&e.wire)   # the next small one after much: in a stream of much it stays


cdef int64_t _pending(Engine* e) noexcept nogil:
    return stream_pending(e) + <int64_t> (e.wire.n - e.wire_sent)


cdef void _finish(Engine* e) noexcept nogil:
    """The codec's end and the filter's, if they can be said now."""
    cdef iovec last
    cdef int rc = MQ_OK
    if e.wire_sent != e.wire.n:
        return
    e.wire.n = e.wire_sent = 0
    last.iov_len = stream_goodbye(e)
    if last.iov_len:
        last.iov_base = e.codec.ctl.at + e.ctl_sent
        rc = e.filter.ops.encode(e.filter, &last, 1, &e.wire)
        e.codec.ctl.n = e.ctl_sent = 0
    if rc == MQ_OK and e.filter.ops.finish != NULL:
        rc = e.filter.ops.finish(e.filter, &e.wire)
    if rc == MQ_OK and e.wire.n:
        last.iov_base = e.wire.at
        last.iov_len = e.wire.n
        stream_send(e.fd, &last, 1)  # what does not fit is not said
    e.wire.n = 0


cdef PumpOps PUMP
PUMP.read = _read
PUMP.write = _write
PUMP.pending = _pending
PUMP.finish = _finish


cdef const PumpOps* filtered_pump() noexcept nogil:
    return &PUMP
