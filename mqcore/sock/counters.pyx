"""The counters of a peer: see counters.pxd."""

from libc.stdint cimport int64_t, uint32_t

from mqcore.link.pipe cimport Link, Traffic
from mqcore.sock.pipes cimport pipe_in
from mqcore.spi.pipe cimport (
    DROP_CONFLATED, DROP_FULL, DROP_HALF_WRITTEN, DROP_LATE, DROP_MALFORMED, DROP_PEER_GONE,
    DROP_REASONS, DROP_UNSENDABLE, DROP_UNSUBSCRIBED, DROP_UNTRANSLATABLE, pipe_drop_in,
)


cdef void show_passed(Pipe* pipe) noexcept nogil:
    """inproc, after a flush: the far end counts what it may read without our lock."""
    cdef int64_t passed = pipe.offered
    cdef int i
    for i in range(DROP_REASONS):
        if i != DROP_CONFLATED:
            passed -= pipe.out_dropped[i]
    pipe.passed_conflated.store(pipe.out_dropped[DROP_CONFLATED])
    pipe.passed.store(passed)


cdef void account(Pipe* pipe, Ended* out) noexcept nogil:
    """Under the lock: the pipe's accounts as they are now. offered is read before written, read
    before delivered would be wrong the other way round; the socket's own are stable here."""
    cdef Link* link = <Link*> pipe.link
    cdef Traffic* t = &link.traffic
    cdef Pipe* other = &link.ends[1] if pipe == &link.ends[0] else &link.ends[0]
    cdef int i
    for i in range(DROP_REASONS):
        out.out_dropped[i] = pipe.out_dropped[i]
        out.in_dropped[i] = pipe.in_dropped[i]
    out.offered = pipe.offered
    out.delivered = pipe.delivered
    if pipe.far_ops.counted:             # inproc: written means the peer has it
        out.written = pipe.offered
        for i in range(DROP_REASONS):
            out.written -= pipe.out_dropped[i]
        out.written += pipe.out_dropped[DROP_CONFLATED]
        out.out_dropped[DROP_CONFLATED] = 0
        out.in_dropped[DROP_CONFLATED] += other.passed_conflated.load()
        out.read = other.passed.load()
        return
    # of these the engine counts the message as written or read first
    out.out_dropped[DROP_UNSENDABLE] += t.unsendable.load()
    out.out_dropped[DROP_PEER_GONE] += t.abandoned.load()
    out.in_dropped[DROP_FULL] += t.missed_in.load()
    out.written = t.written.load()
    out.read = t.read.load()
    out.bounced = t.bounced.load()
    out.lost = t.lost.load()
    out.bytes_out = t.bytes_out.load()
    out.bytes_in = t.bytes_in.load()
    out.bytes_unread = t.unread.load()
    out.bytes_unacked = t.unacked.load()
    out.writes = t.writes.load()
    out.reads = t.reads.load()
    out.rtt = t.rtt.load()
    out.out_dropped[DROP_HALF_WRITTEN] += t.half_out.load()
    out.in_dropped[DROP_CONFLATED] += t.conflated_in.load()
    out.in_dropped[DROP_MALFORMED] += t.malformed_in.load()
    out.in_dropped[DROP_UNSUBSCRIBED] += t.unwanted_in.load()
    out.in_dropped[DROP_LATE] += t.late_in.load()
    out.out_dropped[DROP_UNTRANSLATABLE] += t.untranslated.load()


cdef void account_add(Ended* sum, const Ended* one) noexcept nogil:
    cdef int i
    sum.offered += one.offered
    sum.written += one.written
    sum.delivered += one.delivered
    sum.read += one.read
    sum.bytes_out += one.bytes_out
    sum.bytes_in += one.bytes_in
    sum.bytes_unread += one.bytes_unread
    sum.bytes_unacked += one.bytes_unacked
    for i in range(DROP_REASONS):
        sum.out_dropped[i] += one.out_dropped[i]
        sum.in_dropped[i] += one.in_dropped[i]


cdef void undeliver(Sock* s, uint32_t peer, uint32_t reason) noexcept nogil:
    cdef Pipe* pipe
    cdef Ended* ended
    cdef int i
    s.received -= 1
    for i in range(2):
        pipe = pipe_in(s.hung if i else s.all, peer)
        if pipe != NULL:
            pipe.delivered -= 1
            pipe_drop_in(pipe, reason)
            return
    s.total.delivered -= 1    # it has left since
    s.total.in_dropped[reason] += 1
    ended = s.ended
    while ended != NULL and ended.id != peer:
        ended = ended.next
    if ended != NULL:
        ended.delivered -= 1
        ended.in_dropped[reason] += 1
