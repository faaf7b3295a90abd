"""SUB: messages whose first part starts with a topic that we subscribed to. Peers: PUB, XPUB.

Publishers filter; what arrives all the same (a topic given up while the message was on its way, a
publisher that does not filter) is filtered again here and counted. Publishers are read in turn.

A context has topics of its own, and while there are any, every one has a queue: whoever looks for a
message reads the pipes and gives each message to all that want it, the socket itself (context 0)
among them. Publishers are told the union. A message counts as delivered at its peer when the first
queue has it; one that a full queue then lets go of is counted by the socket. Without contexts
nothing lies between the pipes and recv().
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_copy, msg_data, msg_size, vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_INVALID, MQ_NOMEM, MQ_OK
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable, pipe_look, pipe_skip, vec_cut,
)
from mqcore.protocols.routing.interest cimport (
    Interest, interest_attach, interest_fini, interest_hangup, interest_set,
)
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
from mqcore.spi.pipe cimport (
    DIRTY_HUNG, DROP_CLOSED, DROP_CONFLATED, DROP_FULL, DROP_UNSUBSCRIBED, EV_DROPPED, Host, Pipe,
    lane_front, lane_pop, lane_readable, parts_size, pipe_delivered, pipe_drop_in, pipe_left,
)

cdef struct Context:          # a line of subscriptions
    Context* next
    uint32_t number           # 0: the socket's own
    bint dropping             # a run of drops that was told of
    Topics topics             # the value counts references
    Msg* at                   # its queue: a ring of handles
    size_t cap                # a power of two, or 0
    size_t head
    size_t n
    int64_t msgs
    int64_t bytes

cdef struct Sub:
    Pattern head
    FairQueue inn
    Interest it               # what publishers are told: the union of all contexts
    Context* contexts         # NULL: only the socket's own, whose topics are the union
    Context zero              # the last of the list


cdef int sub_init(Pattern* self) noexcept nogil:
    return MQ_OK


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
    fq_fini(&sub.inn)
    interest_fini(&sub.it)


cdef int sub_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    cdef int rc = fq_attach(&sub.inn, pipe)
    if rc:
        return rc
    rc = interest_attach(&sub.it, pipe)
    if rc:
        fq_detach(&sub.inn, pipe)
    return rc


cdef void sub_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<Sub*> self).it, pipe)


cdef void sub_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<Sub*> self).it, pipe)
    fq_detach(&(<Sub*> self).inn, pipe)


cdef void sub_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Sub*> self).inn, pipe)


cdef inline bint wanted(Topics* topics, Msg* first) noexcept nogil:
    cdef Walk w
    walk_start(&w, topics, msg_data(first), msg_size(first))
    return walk_next(&w) != 0


cdef inline void unwanted(Pipe* p) noexcept nogil:
    """Counted. Peers that are never told what we want send everything: no event for that."""
    if p.sp or p.unversioned:
        p.in_dropped[DROP_UNSUBSCRIBED] += 1
    else:
        pipe_drop_in(p, DROP_UNSUBSCRIBED)


cdef int sub_next(Sub* sub, MsgVec* out) noexcept nogil:
    """The next message that is wanted, counted as delivered."""
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef int rc
    while True:
        rc = fq_read(&sub.inn, out, &p)
        if rc:
            return rc
        if wanted(&sub.it.topics, &out.at[at]):
            pipe_delivered(p)
            return MQ_OK
        unwanted(p)
        vec_cut(out, at)


cdef int sub_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    return context_recv(sub, out) if sub.contexts != NULL else sub_next(sub, out)


cdef bint latest_wanted(Sub* sub, Pipe* p) noexcept nogil:
    """A conflating lane cannot be looked into: its message is taken out, and put back unless a
    newer one has come meanwhile."""
    cdef Msg* m = lane_front(p.inn)
    cdef Msg* none = NULL
    cdef size_t size
    if m == NULL:
        return False
    if not wanted(&sub.it.topics, m):
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
    """Drops what is not wanted, so that the answer is exact."""
    cdef Pipe* p
    cdef Msg* m
    while True:
        p = ring_front(&sub.inn.ring)
        if p == NULL:
            return False
        if p.inn.conflate:
            if latest_wanted(sub, p):
                return True
            if not lane_readable(p.inn):
                ring_drop(&sub.inn.ring)
            continue
        m = pipe_look(p)
        if m == NULL:
            ring_drop(&sub.inn.ring)
        elif wanted(&sub.it.topics, m):
            return True
        else:
            pipe_skip(p)
            unwanted(p)


cdef int sub_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    if sub.contexts != NULL:
        return context_subscribe(sub, topic, size, on != 0)
    return interest_set(&sub.it, topic, size, on != 0)


# -- contexts: the queue ---------------------------------------------------------------------------

cdef bint queue_room(Context* c, size_t n) noexcept nogil:
    """For n more handles. False: no memory."""
    cdef size_t cap = c.cap if c.cap else 8
    cdef size_t i
    cdef Msg* at
    while cap < c.n + n:
        cap *= 2
    if cap == c.cap:
        return True
    at = <Msg*> malloc(cap * sizeof(Msg))
    if at == NULL:
        return False
    for i in range(c.n):
        at[i] = c.at[(c.head + i) & (c.cap - 1)]
    free(c.at)
    c.at = at
    c.cap = cap
    c.head = 0
    return True


cdef size_t queue_front(Context* c) noexcept nogil:
    """Handles of the oldest message, 0: none."""
    cdef size_t n = 0
    if c.n == 0:
        return 0
    while c.at[(c.head + n) & (c.cap - 1)].flags & MSG_MORE:
        n += 1
    return n + 1


cdef Msg queue_pop(Context* c) noexcept nogil:
    """The oldest handle; with the last of a message goes the message."""
    cdef Msg m = c.at[c.head]
    c.head = (c.head + 1) & (c.cap - 1)
    c.n -= 1
    c.bytes -= <int64_t> msg_size(&m)
    if not m.flags & MSG_MORE:
        c.msgs -= 1
    return m


cdef void queue_drop(Context* c) noexcept nogil:
    """The oldest message, uncounted."""
    cdef size_t n = queue_front(c)
    cdef Msg m
    while n:
        n -= 1
        m = queue_pop(c)
        msg_close(&m)


cdef void context_dropped(Sub* sub, Context* c, uint32_t reason) noexcept nogil:
    """The peer has it as delivered: it counts at the socket."""
    cdef Host* host = sub.head.host
    cdef uint8_t data = <uint8_t> reason
    host.dropped[reason] += 1
    if not c.dropping and host.watched.load():
        c.dropping = True
        host.emit(host, EV_DROPPED, NULL, &data, 1)


cdef void queue_give(Sub* sub, Context* c, Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """A copy of the message. The queue is bound as the lane is that it came by: the oldest go."""
    cdef int64_t size = parts_size(parts, n)
    cdef int64_t most = 1 if p.inn.conflate else p.inn.hwm_msgs
    cdef size_t i
    if not queue_room(c, n):
        context_dropped(sub, c, DROP_FULL)
        return
    if c.msgs < most and c.bytes + size <= p.inn.hwm_bytes:
        c.dropping = False
    while c.msgs and (c.msgs >= most or c.bytes + size > p.inn.hwm_bytes):
        queue_drop(c)
        if not p.inn.conflate:
            context_dropped(sub, c, DROP_FULL)
        else:
            sub.head.host.dropped[DROP_CONFLATED] += 1
    for i in range(n):
        msg_copy(&c.at[(c.head + c.n) & (c.cap - 1)], &parts[i])
        c.n += 1
    c.msgs += 1
    c.bytes += size


# -- contexts: their messages ----------------------------------------------------------------------

cdef Context* context_of(Sub* sub, uint32_t number) noexcept nogil:
    cdef Context* c = sub.contexts
    while c != NULL and c.number != number:
        c = c.next
    return c


cdef void context_pump(Sub* sub, Context* asked) noexcept nogil:
    """Reads and hands out until `asked` has a message or nothing is left."""
    cdef MsgVec* v = &sub.inn.scratch
    cdef Pipe* p = NULL
    cdef Context* c
    cdef bint some
    cdef int rc
    while asked.n == 0:
        rc = fq_read(&sub.inn, v, &p)
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
    cdef Context* c = context_of(sub, sub.head.context)
    cdef size_t n
    cdef Msg m
    if c == NULL:
        return MQ_AGAIN
    context_pump(sub, c)
    n = queue_front(c)
    if n == 0:
        return MQ_AGAIN
    if out.cap - out.n < n and vec_grow(out, out.n + n):
        return MQ_NOMEM
    while n:
        n -= 1
        m = queue_pop(c)
        vec_push(out, &m)
    if c.n == 0 and c == sub.contexts and c == &sub.zero:
        contexts_end(sub)
    return MQ_OK


cdef bint context_can_recv(Sub* sub) noexcept nogil:
    cdef Context* c = context_of(sub, sub.head.context)
    if c == NULL:
        return False
    context_pump(sub, c)
    return c.n != 0


cdef int context_subscribe(Sub* sub, const uint8_t* topic, size_t size, bint on) noexcept nogil:
    cdef Context* c = context_of(sub, sub.head.context)
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
    rc = interest_set(&sub.it, topic, size, on)
    if on == (rc == MQ_OK):   # subscribed, or neither: the count is right as it stands
        return rc
    count = topics_find(&c.topics, topic, size)
    count[0] -= 1
    if count[0] == 0:
        topics_remove(&c.topics, topic, size)
    return rc


# -- contexts: life --------------------------------------------------------------------------------

cdef void context_fini(Context* c) noexcept nogil:
    while c.n:
        queue_drop(c)
    free(c.at)
    topics_fini(&c.topics)


cdef void contexts_end(Sub* sub) noexcept nogil:
    """The socket is alone again, and its queue is empty: its topics are the union."""
    context_fini(&sub.zero)
    memset(&sub.zero, 0, sizeof(Context))
    sub.contexts = NULL


cdef int contexts_begin(Sub* sub) noexcept nogil:
    """The socket becomes context 0, with the topics it has and what a query has read for it."""
    cdef size_t size = 0
    cdef uint64_t* count
    cdef uint64_t value = topics_first(&sub.it.topics, sub.it.path, &size)
    while value:
        count = topics_put(&sub.zero.topics, sub.it.path, size)
        if count == NULL:
            contexts_end(sub)
            return MQ_NOMEM
        count[0] = value
        value = topics_next(&sub.it.topics, sub.it.path, &size)
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
    while c.n:
        queue_drop(c)
        sub.head.host.dropped[DROP_CLOSED] += 1
    while True:
        size = 0
        count = topics_first(&c.topics, sub.it.path, &size)
        if count == 0:
            break
        topics_remove(&c.topics, sub.it.path, size)
        while count:
            count -= 1
            interest_set(&sub.it, sub.it.path, size, False)
    context_fini(c)
    free(c)
    if sub.contexts == &sub.zero and sub.zero.n == 0:
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
        return <int64_t> (sub.it.topics.n if sub.contexts == NULL else
                          c.topics.n if c != NULL else 0)
    return 0 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_RECV | PAT_CONFLATE,
    size=sizeof(Sub),
    init=sub_init,
    fini=sub_fini,
    set_option=no_option,
    attach=sub_attach,
    detach=sub_detach,
    hangup=sub_hangup,
    readable=sub_readable,
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
                     "messages whose first part starts with a topic that we subscribed to")
