"""SUB: receives messages whose first part starts with a subscribed topic. Peers: PUB, XPUB.

Publishers filter. Some do not: nng's and those of ZMTP 1.0. Their messages are filtered before they
enter the pipe, so that unwanted ones fill no HWM and conflate nothing. A topic may also have been
unsubscribed meanwhile, so this socket filters again and counts. Publishers are read in turn.

A context has its own topics. While there are contexts, each has a queue, including the socket
itself (context 0). A receive in any context reads the pipes and gives each message to all that want
it. Publishers get the union of all topics. A message counts as delivered at its peer when the first
queue has it. If a full queue then drops it, the socket counts that. Without contexts nothing stands
between the pipes and recv().
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from mqcore.base.fifo cimport Fifo, fifo_drop, fifo_fini, fifo_put, fifo_reserve, fifo_take
from mqcore.base.lock cimport Lock, lock_release, lock_take
from mqcore.base.message cimport Msg, MsgVec, msg_close, msg_copy, msg_data, msg_size
from mqcore.base.status cimport MQ_AGAIN, MQ_INVALID, MQ_NOMEM, MQ_OK
from mqcore.protocols.routing.fair_queue cimport fq_read, pipe_look, pipe_skip, vec_cut
from mqcore.protocols.routing.follow cimport (
    Follower, follow_attach, follow_detach, follow_fini, follow_hangup, follow_init,
    follow_readable,
)
from mqcore.protocols.routing.interest cimport interest_set
from mqcore.protocols.routing.ring cimport ring_drop, ring_front
from mqcore.protocols.routing.stub cimport no_event, no_option, no_send
from mqcore.protocols.routing.topics cimport (
    Topics, Walk, topics_find, topics_fini, topics_first, topics_next, topics_put, topics_remove,
    walk_next, walk_start,
)
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_RECV, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Q_TOPICS, Pattern, PatternOps,
    plugin_new,
)
from mqcore.spi.lane cimport lane_front, lane_pop, lane_readable
from mqcore.spi.pipe cimport (
    DIRTY_HUNG, DROP_CLOSED, DROP_CONFLATED, DROP_FULL, DROP_UNSUBSCRIBED, EV_DROPPED, Host, Pipe,
    parts_size, pipe_delivered, pipe_drop_in, pipe_left,
)

cdef enum:
    PUMP_MOST = 64            # newer messages that a receive looks for: publishers may be faster

cdef struct Context:          # a set of subscriptions
    Context* next
    uint32_t number           # 0: the socket's own
    bint dropping             # a run of drops that was reported
    Topics topics             # the value counts references
    Fifo queue

cdef struct Sub:
    Follower base             # its topics are the union of all contexts
    Context* contexts         # NULL: only the socket's own, whose topics are the union
    Context zero              # the last of the list
    Lock gate                 # over changes of base.it.topics, and over _enters, which has no other


cdef int sub_init(Pattern* self) noexcept nogil:
    self.host.wanted = _enters
    return follow_init(self)


cdef bint _enters(void* pattern, Msg* first) noexcept nogil:
    """Host.wanted: any thread."""
    cdef Sub* sub = <Sub*> pattern
    cdef bint some
    lock_take(&sub.gate)
    some = wanted(&sub.base.it.topics, first)
    lock_release(&sub.gate)
    return some


cdef int sub_interest(Sub* sub, const uint8_t* topic, size_t size, bint on) noexcept nogil:
    cdef int rc
    lock_take(&sub.gate)
    rc = interest_set(&sub.base.it, topic, size, on)
    lock_release(&sub.gate)
    return rc


cdef void sub_fini(Pattern* self) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    cdef Context* c = sub.contexts
    cdef Context* following
    while c != NULL:
        following = c.next
        context_fini(c)
        if c != &sub.zero:
            free(c)
        c = following
    follow_fini(self)


cdef inline bint wanted(Topics* topics, Msg* first) noexcept nogil:
    cdef Walk w
    walk_start(&w, topics, msg_data(first), msg_size(first))
    return walk_next(&w) != 0


cdef inline void unwanted(Pipe* p) noexcept nogil:
    """Count an unwanted message. Peers that get no subscriptions send everything: no event for
    them."""
    if p.sp or p.unversioned:
        p.in_dropped[DROP_UNSUBSCRIBED] += 1
    else:
        pipe_drop_in(p, DROP_UNSUBSCRIBED)


cdef int sub_next(Sub* sub, MsgVec* out) noexcept nogil:
    """The next wanted message, counted as delivered."""
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef int rc
    while True:
        rc = fq_read(&sub.base.inn, out, &p)
        if rc:
            return rc
        if wanted(&sub.base.it.topics, &out.at[at]):
            pipe_delivered(p)
            return MQ_OK
        unwanted(p)
        vec_cut(out, at)


cdef int sub_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    return context_recv(sub, out) if sub.contexts != NULL else sub_next(sub, out)


cdef bint latest_wanted(Sub* sub, Pipe* p) noexcept nogil:
    """A conflating lane cannot be peeked: its message is taken out, and put back unless a newer one
    has arrived meanwhile."""
    cdef Msg* m = lane_front(p.inn)
    cdef Msg* none = NULL
    cdef size_t size
    if m == NULL:
        return False
    if not wanted(&sub.base.it.topics, m):
        unwanted(p)
    elif p.inn.latest.compare_exchange_strong(none, m):
        return True
    else:
        pipe_drop_in(p, DROP_CONFLATED)
    size = msg_size(m)
    msg_close(m)
    lane_pop(p.inn, m)
    if p.dirty & DIRTY_HUNG:
        pipe_left(p, <int64_t> size)
    return False


cdef bint sub_can_recv(Sub* sub) noexcept nogil:
    """Drops unwanted messages, so that the result is exact."""
    cdef Pipe* p
    cdef Msg* m
    while True:
        p = ring_front(&sub.base.inn.ring)
        if p == NULL:
            return False
        if p.inn.conflate:
            if latest_wanted(sub, p):
                return True
            if not lane_readable(p.inn):
                ring_drop(&sub.base.inn.ring)
            continue
        m = pipe_look(p)
        if m == NULL:
            ring_drop(&sub.base.inn.ring)
        elif wanted(&sub.base.it.topics, m):
            return True
        else:
            pipe_skip(p)
            unwanted(p)


cdef int sub_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    if sub.contexts != NULL:
        return context_subscribe(sub, topic, size, on != 0)
    return sub_interest(sub, topic, size, on != 0)


# -- contexts: the queue ---------------------------------------------------------------------------

cdef void context_dropped(Sub* sub, Context* c, uint32_t reason) noexcept nogil:
    """The peer has counted it as delivered, so the socket counts the drop."""
    cdef Host* host = sub.base.head.host
    cdef uint8_t data = <uint8_t> reason
    host.dropped[reason] += 1
    if not c.dropping and host.watched.load():
        c.dropping = True
        host.emit(host, EV_DROPPED, NULL, &data, 1)


cdef void queue_give(Sub* sub, Context* c, Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """Queue a copy of the message. The queue has the limits of its lane: the oldest are dropped."""
    cdef int64_t size = parts_size(parts, n)
    cdef int64_t most = 1 if p.inn.conflate else p.inn.hwm_msgs
    cdef Msg copy
    cdef size_t i
    if fifo_reserve(&c.queue, n):
        context_dropped(sub, c, DROP_FULL)
        return
    if c.queue.msgs < most and c.queue.bytes + size <= p.inn.hwm_bytes:
        c.dropping = False
    while c.queue.msgs and (c.queue.msgs >= most or c.queue.bytes + size > p.inn.hwm_bytes):
        fifo_drop(&c.queue)
        if not p.inn.conflate:
            context_dropped(sub, c, DROP_FULL)
        else:
            sub.base.head.host.dropped[DROP_CONFLATED] += 1
    for i in range(n):
        msg_copy(&copy, &parts[i])
        fifo_put(&c.queue, &copy, 1)          # its place is reserved


# -- contexts: their messages ----------------------------------------------------------------------

cdef Context* context_of(Sub* sub, uint32_t number) noexcept nogil:
    cdef Context* c = sub.contexts
    while c != NULL and c.number != number:
        c = c.next
    return c


cdef inline bint newer(Sub* sub) noexcept nogil:
    """Whether a pipe that conflates has a message, which replaces the queued ones."""
    cdef Pipe* p = ring_front(&sub.base.inn.ring)
    return p != NULL and p.inn.conflate


cdef void context_pump(Sub* sub, Context* asked) noexcept nogil:
    """Read and distribute until `asked` has a message, the newest if it conflates, or nothing is
    left."""
    cdef MsgVec* v = &sub.base.inn.scratch
    cdef Pipe* p = NULL
    cdef Context* c
    cdef bint some
    cdef int turns = 0
    cdef int rc
    while asked.queue.n == 0 or (turns < PUMP_MOST and newer(sub)):
        turns += 1
        rc = fq_read(&sub.base.inn, v, &p)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK:
            some = False
            c = sub.contexts
            while c != NULL:
                if wanted(&c.topics, &v.at[0]):
                    some = True
                    queue_give(sub, c, p, v.at, v.n)
                c = c.next
            if some:
                pipe_delivered(p)
            else:
                unwanted(p)
        vec_cut(v, 0)


cdef int context_recv(Sub* sub, MsgVec* out) noexcept nogil:
    cdef Context* c = context_of(sub, sub.base.head.context)
    if c == NULL:
        return MQ_AGAIN
    context_pump(sub, c)
    if c.queue.n == 0:
        return MQ_AGAIN
    if fifo_take(&c.queue, out):
        return MQ_NOMEM
    if c.queue.n == 0 and c == sub.contexts and c == &sub.zero:
        contexts_end(sub)
    return MQ_OK


cdef bint context_can_recv(Sub* sub) noexcept nogil:
    cdef Context* c = context_of(sub, sub.base.head.context)
    if c == NULL:
        return False
    context_pump(sub, c)
    return c.queue.n != 0


cdef int context_subscribe(Sub* sub, const uint8_t* topic, size_t size, bint on) noexcept nogil:
    cdef Context* c = context_of(sub, sub.base.head.context)
    cdef uint64_t* count
    cdef int rc
    if c == NULL:
        return MQ_INVALID
    if on:
        count = topics_put(&c.topics, topic, size)
        if count == NULL:
            return MQ_NOMEM
        count[0] += 1
    else:
        count = topics_find(&c.topics, topic, size)
        if count == NULL:
            return MQ_INVALID
    rc = sub_interest(sub, topic, size, on)
    if on == (rc == MQ_OK):   # subscribed, or neither: the count is already right
        return rc
    count = topics_find(&c.topics, topic, size)
    count[0] -= 1
    if count[0] == 0:
        topics_remove(&c.topics, topic, size)
    return rc


# -- contexts: life --------------------------------------------------------------------------------

cdef void context_fini(Context* c) noexcept nogil:
    fifo_fini(&c.queue)
    topics_fini(&c.topics)


cdef void contexts_end(Sub* sub) noexcept nogil:
    """No context is left, and the socket's queue is empty: its topics are the union."""
    context_fini(&sub.zero)
    memset(&sub.zero, 0, sizeof(Context))
    sub.contexts = NULL


cdef int contexts_begin(Sub* sub) noexcept nogil:
    """The socket becomes context 0, with its topics and what a query has already read for it."""
    cdef size_t size = 0
    cdef uint64_t* count
    cdef uint64_t value = topics_first(&sub.base.it.topics, sub.base.it.path, &size)
    while value:
        count = topics_put(&sub.zero.topics, sub.base.it.path, size)
        if count == NULL:
            contexts_end(sub)
            return MQ_NOMEM
        count[0] = value
        value = topics_next(&sub.base.it.topics, sub.base.it.path, &size)
    sub.contexts = &sub.zero
    return MQ_OK


cdef int context_open(Sub* sub, uint32_t number) noexcept nogil:
    cdef Context* c = <Context*> calloc(1, sizeof(Context))
    if c == NULL:
        return MQ_NOMEM
    if sub.contexts == NULL and contexts_begin(sub):
        free(c)
        return MQ_NOMEM
    c.number = number
    c.next = sub.contexts
    sub.contexts = c
    return MQ_OK


cdef int context_close(Sub* sub, uint32_t number) noexcept nogil:
    cdef Context** at = &sub.contexts
    cdef Context* c
    cdef size_t size
    cdef uint64_t count
    while at[0] != NULL and at[0].number != number:
        at = &at[0].next
    c = at[0]
    if c == NULL or c == &sub.zero:
        return MQ_INVALID
    at[0] = c.next
    while c.queue.n:
        fifo_drop(&c.queue)
        sub.base.head.host.dropped[DROP_CLOSED] += 1
    while True:
        size = 0
        count = topics_first(&c.topics, sub.base.it.path, &size)
        if count == 0:
            break
        topics_remove(&c.topics, sub.base.it.path, size)
        while count:
            count -= 1
            sub_interest(sub, sub.base.it.path, size, False)
    context_fini(c)
    free(c)
    if sub.contexts == &sub.zero and sub.zero.queue.n == 0:
        contexts_end(sub)
    return MQ_OK


cdef int sub_context(Pattern* self, uint32_t number, bint on) noexcept nogil:
    return context_open(<Sub*> self, number) if on else context_close(<Sub*> self, number)


cdef int64_t sub_query(Pattern* self, uint32_t what, const uint8_t* data,
                       size_t size) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    cdef Context* c
    if what == Q_CAN_RECV:
        return sub_can_recv(sub) if sub.contexts == NULL else context_can_recv(sub)
    if what == Q_TOPICS:
        c = context_of(sub, self.context)
        return <int64_t> (sub.base.it.topics.n if sub.contexts == NULL else
                          c.topics.n if c != NULL else 0)
    return 0 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_RECV | PAT_CONFLATE,
    size=sizeof(Sub),
    init=sub_init,
    fini=sub_fini,
    set_option=no_option,
    attach=follow_attach,
    detach=follow_detach,
    hangup=follow_hangup,
    readable=follow_readable,
    writable=no_event,
    send=no_send,
    recv=sub_recv,
    send_to=NULL,
    subscribe=sub_subscribe,
    abandon=NULL,
    query=sub_query,
    context=sub_context,
    alarm=NULL,
)

pattern = plugin_new(&OPS, "sub", 2, "SUB", 0x21, ("pub", "xpub"), (),
                     "receives messages whose first part starts with a subscribed topic")
