"""The pipes of a socket: peers that come and go, unrouted messages that wait for one, and the
accounts of those that left. Everything here runs under the socket's lock. See pipes.pxd.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, memset

from mqcore.base.message cimport MSG_MORE, Msg, msg_close, msg_size, vec_push
from mqcore.base.status cimport MQ_AGAIN, MQ_DROPPED, MQ_FAILED, MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.link.pipe cimport (
    EVENT_ATTACH, EVENT_READ, EVENT_SHUT, EVENT_TERM, EVENT_WRITE, PIPE_ATTACHED, PIPE_ENDED,
    PIPE_HELD, PIPE_HUNG, PIPE_NEW, PIPE_REFUSED, PIPE_SHUT, Link, link_gone, link_let_go,
    link_unref,
)
from mqcore.link.plane cimport NOTE_GONE, ControlNote, plane_tell
from mqcore.sock.counters cimport account, account_add
from mqcore.sock.departed cimport (
    departed_count, departed_forget, departed_keep, departed_room, discard, drop_unread,
)
from mqcore.sock.returned cimport take_back
from mqcore.sock.sock cimport CLOSING_ALL
from mqcore.spi.lane cimport lane_readable
from mqcore.spi.pattern cimport PAT_RECV
from mqcore.spi.pipe cimport (
    DIRTY_HUNG, DIRTY_LISTED, DROP_CLOSED, DROP_CONFLATED, DROP_FULL, DROP_MALFORMED,
    DROP_PEER_GONE, DROP_UNEXPECTED, Pipe, pipe_close,
)

cdef enum:
    ENDED_KEPT = 1024         # peers that left, with their accounts


# -- what engines and other sockets told us --------------------------------------------------

cdef void drain(Sock* s) noexcept nogil:
    cdef Pipe* stack = s.ready.exchange(NULL)
    cdef Pipe* pipe = NULL
    cdef Pipe* following
    cdef uint32_t events
    while stack != NULL:        # oldest first
        following = stack.ready_next
        stack.ready_next = pipe
        pipe = stack
        stack = following
    while pipe != NULL:
        following = pipe.ready_next
        events = pipe.events.exchange(0)
        if events & EVENT_ATTACH and pipe.state == PIPE_NEW:
            if s.holds:
                _hold(s, pipe)
            else:
                _attach(s, pipe)
            events |= EVENT_READ     # an inproc peer that attached first may have written already
        if pipe.state == PIPE_ATTACHED:
            if events & EVENT_WRITE:
                pipe.dropping &= ~(<uint32_t> 1 << DROP_FULL)
                s.ops.writable(s.pattern, pipe)
            if events & EVENT_READ:
                s.ops.readable(s.pattern, pipe)
            if events & EVENT_SHUT:
                _shut(s, pipe)
        elif pipe.state == PIPE_SHUT and events & EVENT_READ:
            s.ops.readable(s.pattern, pipe)
        elif events & EVENT_SHUT:
            (<Link*> pipe.link).shut = 1     # not admitted yet
        if events & EVENT_TERM:
            _hangup(s, pipe)
        link_unref(<Link*> pipe.link)
        pipe = following
    if s.n_waiting.load():
        pump(s)


cdef void _attach(Sock* s, Pipe* pipe) noexcept nogil:
    pipe.host = &s.host
    if s.closing.load() == CLOSING_ALL or s.ops.attach(s.pattern, pipe):
        pipe.state = PIPE_REFUSED
        (<Link*> pipe.link).refused = 1
        if not pipe.dirty & DIRTY_HUNG:
            pipe_close(pipe)
        return                # the far side lets go, then TERM comes and frees it
    pipe.state = PIPE_ATTACHED
    pipe.all_prev = NULL
    pipe.all_next = s.all
    if s.all != NULL:
        s.all.all_prev = pipe
    s.all = pipe
    s.n_pipes.fetch_add(1)


cdef void _hold(Sock* s, Pipe* pipe) noexcept nogil:
    """Its peer may write up to our HWM; the pipe is neither read nor written here."""
    if s.closing.load() == CLOSING_ALL:
        _attach(s, pipe)      # which refuses it
        return
    pipe.state = PIPE_HELD
    pipe.all_prev = NULL
    pipe.all_next = s.held
    if s.held != NULL:
        s.held.all_prev = pipe
    s.held = pipe


cdef Pipe* pipe_of(Sock* s, uint32_t peer, bint* held) noexcept nogil:
    cdef Pipe* pipe = pipe_in(s.all, peer)      # the newest first
    held[0] = pipe == NULL
    return pipe_in(s.held, peer) if held[0] else pipe


cdef bint admit(Sock* s, uint32_t peer) noexcept nogil:
    cdef bint departed
    cdef Pipe* pipe = pipe_in(s.held, peer)
    if pipe == NULL:
        return False
    _unlist(&s.held, pipe)
    departed = pipe.dirty & DIRTY_HUNG
    departed_forget(pipe)
    _attach(s, pipe)
    pipe.dirty &= ~(<uint32_t> DIRTY_HUNG)
    if pipe.state == PIPE_ATTACHED:
        s.ops.readable(s.pattern, pipe)
        if departed or (<Link*> pipe.link).shut:
            _shut(s, pipe)
        if departed:
            _part(s, pipe)
        if s.n_waiting.load():
            pump(s)
    elif departed:
        _refuse(s, pipe)
    return True


cdef void _unlist(Pipe** head, Pipe* pipe) noexcept nogil:
    if pipe.all_prev != NULL:
        pipe.all_prev.all_next = pipe.all_next
    else:
        head[0] = pipe.all_next
    if pipe.all_next != NULL:
        pipe.all_next.all_prev = pipe.all_prev


cdef void _undirty(Sock* s, Pipe* pipe) noexcept nogil:
    cdef Pipe** at = &s.host.dirty
    if not pipe.dirty & DIRTY_LISTED:
        return
    while at[0] != pipe:
        at = &at[0].dirty_next
    at[0] = pipe.dirty_next
    pipe.dirty = 0


cdef void _shut(Sock* s, Pipe* pipe) noexcept nogil:
    """Nothing more can be sent to the peer, and what it has sent is still arriving."""
    pipe.state = PIPE_SHUT
    s.ops.hangup(s.pattern, pipe)
    take_back(s, pipe)


cdef void _hangup(Sock* s, Pipe* pipe) noexcept nogil:
    """The far side has let go. What it published can still be read, if anybody ever will."""
    if pipe.state == PIPE_ATTACHED:
        _shut(s, pipe)
    if pipe.state == PIPE_SHUT:
        link_let_go(<Link*> pipe.link, pipe)
        _part(s, pipe)
    elif pipe.state == PIPE_HELD and not pipe.dirty & DIRTY_HUNG:
        link_let_go(<Link*> pipe.link, pipe)
        departed_count(s, pipe)   # it may be admitted yet, unless it has been sent away
        if not lane_readable(pipe.inn) or (<Link*> pipe.link).refused or s.closing.load():
            dismiss(s, pipe)
    elif pipe.state == PIPE_NEW or pipe.state == PIPE_REFUSED:
        link_let_go(<Link*> pipe.link, pipe)
        _refuse(s, pipe)
        departed_room(s)


cdef void dismiss(Sock* s, Pipe* pipe) noexcept nogil:
    if not pipe.dirty & DIRTY_HUNG:
        pipe_close(pipe)
        return
    _unlist(&s.held, pipe)
    departed_forget(pipe)
    _refuse(s, pipe)
    departed_room(s)


cdef void _refuse(Sock* s, Pipe* pipe) noexcept nogil:
    """The end of a pipe that the pattern has never had, or refused."""
    drop_unread(pipe, DROP_CLOSED if s.closing.load() else DROP_UNEXPECTED)
    _undirty(s, pipe)
    _settle(s, pipe, False)
    pipe.state = PIPE_ENDED
    link_unref(<Link*> pipe.link)


cdef void _part(Sock* s, Pipe* pipe) noexcept nogil:
    """The far side of a shut pipe has let go: what is left is read, and then the pipe ends."""
    pipe.state = PIPE_HUNG
    _unlist(&s.all, pipe)
    s.n_pipes.fetch_sub(1)
    pipe.all_prev = NULL
    pipe.all_next = s.hung
    if s.hung != NULL:
        s.hung.all_prev = pipe
    s.hung = pipe
    if s.closing.load():
        discard(pipe, DROP_CLOSED)
    elif not s.flags & PAT_RECV:
        discard(pipe, DROP_UNEXPECTED)
    else:
        departed_keep(s, pipe)
    reap(s)


cdef void reap(Sock* s) noexcept nogil:
    """End the hung pipes that have been read to the end."""
    cdef Pipe* pipe
    while s.host.emptied != NULL:
        pipe = s.host.emptied
        s.host.emptied = pipe.emptied_next
        if lane_readable(pipe.inn):      # inproc: the other end wrote once more before it noticed
            discard(pipe, DROP_PEER_GONE)
        _finish(s, pipe)
    departed_room(s)


cdef void _finish(Sock* s, Pipe* pipe) noexcept nogil:
    departed_forget(pipe)
    s.ops.detach(s.pattern, pipe)
    _unlist(&s.hung, pipe)
    _undirty(s, pipe)
    _settle(s, pipe, True)
    pipe.state = PIPE_ENDED
    link_unref(<Link*> pipe.link)


# -- accounts --------------------------------------------------------------------------------------

cdef void _tell_gone(Sock* s, Pipe* pipe) noexcept nogil:
    """Of an engine's pipe the control plane learns by the engine's own notes."""
    cdef ControlNote* note = link_gone(<Link*> pipe.link, pipe)
    if note != NULL:
        plane_tell(s.plane, note, NOTE_GONE, s.port.number, 0xffffffff, pipe.id,
                   <int> (<Link*> pipe.link).refused)


cdef void _settle(Sock* s, Pipe* pipe, bint met) noexcept nogil:
    """The pipe's final accounts. met: the pattern has had it. Else these are kept only if the peer
    has sent something, so that those who come again and again displace no others."""
    cdef Ended* e = <Ended*> calloc(1, sizeof(Ended))
    cdef Ended here
    cdef Ended* oldest
    cdef int i
    memset(&here, 0, sizeof(Ended))
    here.id = pipe.id
    here.since = (<Link*> pipe.link).since
    account(pipe, &here)
    account_add(&s.total, &here)
    _tell_gone(s, pipe)
    if e == NULL or not (met or here.read or here.bytes_unread):
        free(e)
        return
    e[0] = here
    e.next = s.ended
    s.ended = e
    s.n_ended += 1
    if s.n_ended > 2 * ENDED_KEPT:       # forget the older half
        oldest = s.ended
        for i in range(ENDED_KEPT - 1):
            oldest = oldest.next
        e = oldest.next
        oldest.next = NULL
        s.n_ended = ENDED_KEPT
        while e != NULL:
            oldest = e.next
            free(e)
            e = oldest


# -- unrouted messages -----------------------------------------------------------------------------

cdef int wait_in_line(Sock* s, Msg* parts, size_t n) noexcept nogil:
    """No peer yet: the message waits in the socket. MQ_FULL at the HWM."""
    cdef size_t i
    cdef int64_t size = 0
    if s.n_waiting.load() >= s.port.send.msgs:
        return MQ_FULL
    for i in range(n):
        size += <int64_t> msg_size(&parts[i])
    if s.n_waiting.load() and s.waiting_bytes + size > s.port.send.bytes:
        return MQ_FULL
    if s.port.send.conflate:
        forget_waiting(s, DROP_CONFLATED)
    # a line that never empties: close up
    if s.waiting_at >= 64 and s.waiting_at * 2 >= s.waiting.n:
        s.waiting.n -= s.waiting_at
        memmove(s.waiting.at, s.waiting.at + s.waiting_at, s.waiting.n * sizeof(Msg))
        s.waiting_at = 0
    for i in range(n):
        if vec_push(&s.waiting, &parts[i]):
            s.waiting.n -= i
            return MQ_NOMEM
    s.n_waiting.fetch_add(1)
    s.waiting_bytes += size
    return MQ_OK


cdef void forget_waiting(Sock* s, uint32_t reason) noexcept nogil:
    cdef size_t i
    for i in range(s.waiting_at, s.waiting.n):
        msg_close(&s.waiting.at[i])
    s.host.dropped[reason] += s.n_waiting.load()
    s.n_waiting.store(0)
    s.waiting_bytes = 0
    s.waiting.n = 0
    s.waiting_at = 0


cdef size_t _next_waiting(Sock* s, size_t at) noexcept nogil:
    while s.waiting.at[at].flags & MSG_MORE:
        at += 1
    return at + 1


cdef bint waits_of(Sock* s, uint32_t context) noexcept nogil:
    cdef size_t at = s.waiting_at
    while at < s.waiting.n:
        if s.waiting.at[at].peer == context:
            return True
        at = _next_waiting(s, at)
    return False


cdef void forget_waiting_of(Sock* s, uint32_t context, uint32_t reason) noexcept nogil:
    cdef size_t at = s.waiting_at
    cdef size_t to = at
    cdef size_t end, i
    cdef bint its
    while at < s.waiting.n:
        end = _next_waiting(s, at)
        its = s.waiting.at[at].peer == context
        for i in range(at, end):
            if its:
                s.waiting_bytes -= <int64_t> msg_size(&s.waiting.at[i])
                msg_close(&s.waiting.at[i])
            else:
                s.waiting.at[to] = s.waiting.at[i]
                to += 1
        if its:
            s.host.dropped[reason] += 1
            s.n_waiting.fetch_sub(1)
        at = end
    s.waiting.n = to


cdef void pump(Sock* s) noexcept nogil:
    """Peers came or have space: unrouted messages go to them, in order."""
    cdef size_t n
    cdef size_t i
    cdef int64_t size
    cdef int rc
    while s.waiting_at < s.waiting.n:
        n = 1
        while s.waiting.at[s.waiting_at + n - 1].flags & MSG_MORE:
            n += 1
        size = 0
        for i in range(n):
            size += <int64_t> msg_size(&s.waiting.at[s.waiting_at + i])
        s.host.pumping = 1
        rc = s.ops.send(s.pattern, &s.waiting.at[s.waiting_at], n)
        s.host.pumping = 0
        if rc == MQ_AGAIN or rc == MQ_FULL or rc == MQ_NOMEM or rc == MQ_FAILED:
            return
        if rc != MQ_OK and rc != MQ_DROPPED:
            for i in range(n):
                msg_close(&s.waiting.at[s.waiting_at + i])
            s.host.dropped[DROP_MALFORMED] += 1
        s.waiting_at += n
        s.n_waiting.fetch_sub(1)
        s.waiting_bytes -= size
    s.waiting.n = 0
    s.waiting_at = 0
