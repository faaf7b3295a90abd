"""Accounts: see accounts.pxd."""

from libc.stdlib cimport calloc
from libc.string cimport memset

from mqcore.link.pipe cimport Link
from mqcore.sock.counters cimport account, account_add
from mqcore.sock.sock cimport sock_enter, sock_leave
from mqcore.spi.pipe cimport DIRTY_HUNG, DROP_REASONS, Pipe


cdef void take_snapshot(Sock* s, Snapshot* shot) noexcept nogil:
    cdef Pipe* pipe
    cdef Pipe* heads[3]
    cdef Ended* ended
    cdef int i
    memset(shot, 0, sizeof(Snapshot))
    sock_enter(s)
    heads[0], heads[1], heads[2] = s.all, s.held, s.hung
    shot.sent = s.sent
    shot.received = s.received
    shot.waiting = s.n_waiting.load()
    shot.unmatched = s.host.unmatched
    shot.dropped = s.host.dropped
    shot.total = s.total
    shot.total.bytes_unread += s.port.unread.load()
    shot.total.bytes_unacked += s.port.unacked.load()
    shot.left_dropped = s.left_dropped
    shot.batching = s.batching
    for i in range(3):
        shot.live += count_pipes(heads[i])
    shot.n = shot.live + s.n_ended
    shot.at = <Ended*> calloc(shot.n + 1, sizeof(Ended))
    if shot.at != NULL:
        shot.live = 0
        for i in range(3):
            pipe = heads[i]
            while pipe != NULL:
                live_account(pipe, &shot.at[shot.live])
                if pipe.dirty & DIRTY_HUNG:
                    account_add(&shot.left, &shot.at[shot.live])
                    shot.left_peers += 1
                shot.live += 1
                pipe = pipe.all_next
        shot.n = shot.live
        ended = s.ended
        while ended != NULL:
            shot.at[shot.n] = ended[0]
            shot.n += 1
            ended = ended.next
    sock_leave(s, True)


cdef size_t count_pipes(const Pipe* pipe) noexcept nogil:
    cdef size_t n = 0
    while pipe != NULL:
        n += 1
        pipe = pipe.all_next
    return n


cdef void live_account(Pipe* pipe, Ended* out) noexcept nogil:
    cdef Link* link = <Link*> pipe.link
    out.id = pipe.id
    out.since = link.since
    account(pipe, out)


cdef dict account_dict(Ended* e):
    return {
        "offered": e.offered, "written": e.written, "read": e.read, "delivered": e.delivered,
        "bytes_out": e.bytes_out, "bytes_in": e.bytes_in,
        "bytes_unread": e.bytes_unread, "bytes_unacked": e.bytes_unacked, "since": e.since / 1e9,
        "rtt": e.rtt / 1e9 or None, "writes": e.writes, "reads": e.reads,
        "bounced": e.bounced, "lost": e.lost,
        "out_dropped": [e.out_dropped[i] for i in range(DROP_REASONS)],
        "in_dropped": [e.in_dropped[i] for i in range(DROP_REASONS)],
    }
