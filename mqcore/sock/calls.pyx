"""The calls of a socket besides sending and receiving: see calls.pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from mqcore.base.status cimport MQ_CLOSED, MQ_UNSUPPORTED
from mqcore.reactor.io_thread cimport io_post
from mqcore.sock.alarm cimport alarm_hold
from mqcore.sock.departed cimport discard
from mqcore.sock.events cimport sock_changed
from mqcore.sock.counters cimport account
from mqcore.sock.pipes cimport dismiss, forget_waiting, forget_waiting_of, reap
from mqcore.sock.sock cimport (
    CLOSING_ALL, CLOSING_INPUT, CLOSING_NOT, Ended, Sock, sock_enter, sock_leave,
)
from mqcore.sock.watch cimport watch_hurry
from mqcore.spi.pattern cimport PAT_EXCHANGE
from mqcore.spi.pipe cimport DROP_CANCELLED, DROP_CLOSED, DROP_REASONS, Pipe, pipe_close


# -- the rest of the pattern's face ----------------------------------------------------------------

cdef int sock_subscribe(Sock* s, uint32_t context, const uint8_t* topic, size_t size,
                        int on) noexcept nogil:
    cdef int rc = MQ_UNSUPPORTED
    sock_enter(s)
    if s.closing.load():
        rc = MQ_CLOSED
    elif s.ops.subscribe != NULL:
        s.pattern.context = context
        rc = s.ops.subscribe(s.pattern, topic, size, on)
        s.pattern.context = 0
    sock_leave(s, True)
    return rc


cdef void sock_abandon(Sock* s, uint32_t context) noexcept nogil:
    sock_enter(s)
    if s.flags & PAT_EXCHANGE and s.n_waiting.load():
        forget_waiting_of(s, context, DROP_CANCELLED)
    if s.ops.abandon != NULL:
        s.pattern.context = context
        s.ops.abandon(s.pattern)
        s.pattern.context = 0
    sock_leave(s, True)


cdef int sock_open_context(Sock* s, uint32_t* context) noexcept nogil:
    cdef int rc = MQ_UNSUPPORTED
    sock_enter(s)
    if s.closing.load():
        rc = MQ_CLOSED
    elif s.ops.context != NULL:
        s.contexts += 1
        context[0] = s.contexts
        rc = s.ops.context(s.pattern, context[0], True)
    sock_leave(s, True)
    return rc


cdef void sock_close_context(Sock* s, uint32_t context) noexcept nogil:
    sock_enter(s)
    if s.n_waiting.load():
        forget_waiting_of(s, context, DROP_CANCELLED)
    s.ops.context(s.pattern, context, False)
    sock_leave(s, True)
    sock_changed(s)           # waiters of this context check


cdef int64_t sock_query_as(Sock* s, uint32_t context, uint32_t what) noexcept nogil:
    cdef int64_t answer
    sock_enter(s)
    s.pattern.context = context
    answer = s.ops.query(s.pattern, what, NULL, 0)
    s.pattern.context = 0
    sock_leave(s, True)
    return answer


cdef int64_t sock_query(Sock* s, uint32_t what, const uint8_t* data, size_t size) noexcept nogil:
    cdef int64_t answer
    sock_enter(s)
    answer = s.ops.query(s.pattern, what, data, size)
    sock_leave(s, True)
    return answer


# -- accounts --------------------------------------------------------------------------------------

cdef int64_t sock_outstanding(Sock* s) noexcept nogil:
    cdef int64_t sum
    cdef Pipe* pipe
    cdef Ended e
    cdef int i
    sock_enter(s)
    sum = s.n_waiting.load()
    pipe = s.all
    while pipe != NULL:
        memset(&e, 0, sizeof(Ended))
        account(pipe, &e)
        sum += e.offered - e.written
        for i in range(DROP_REASONS):
            sum -= e.out_dropped[i]
        pipe = pipe.all_next
    sock_leave(s, True)
    return sum


# -- closing ---------------------------------------------------------------------------------------

cdef bint sock_close_input(Sock* s) noexcept nogil:
    cdef uint32_t open_ = CLOSING_NOT
    if not s.closing.compare_exchange_strong(open_, CLOSING_INPUT):
        return False
    sock_enter(s)
    s.host.closing = 1
    sock_leave(s, True)
    if s.ops.alarm != NULL and alarm_hold(s):
        io_post(s.plane.ios[0], &s.alarm_task)
    sock_changed(s)
    watch_hurry(s)
    return True


cdef void sock_drop_all(Sock* s) noexcept nogil:
    """Count the remaining messages and end the far side of every pipe. Unread inbound messages are
    dropped, too."""
    cdef Pipe* pipe
    cdef Pipe* following
    sock_enter(s)
    s.closing.store(CLOSING_ALL)
    forget_waiting(s, DROP_CLOSED)
    pipe = s.all
    while pipe != NULL:
        pipe_close(pipe)
        pipe = pipe.all_next
    pipe = s.held
    while pipe != NULL:
        following = pipe.all_next
        dismiss(s, pipe)
        pipe = following
    pipe = s.hung
    while pipe != NULL:
        discard(pipe, DROP_CLOSED)
        pipe = pipe.all_next
    reap(s)
    sock_leave(s, True)
