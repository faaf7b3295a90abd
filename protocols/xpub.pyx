"""XPUB: a PUB whose application sees the subscriptions and receives subscribers' messages. Peers:
SUB, XSUB.

`recv` returns 01 + topic for a topic's first subscriber and 00 + topic when the last one leaves.
`verbose` adds all other subscribes, `verboser` also all other cancels. With `manual` nothing is
applied automatically: every notification is delivered, and `subscribe` applies to the peer of the
one received last, if it is still there. Of a peer that leaves, the end of each topic that it had
asked for is delivered. Other messages of peers are delivered.

Notifications carry MSG_NOTE, and MSG_LAST if the topic has no subscriber left, so that an
XSUB to which a device forwards them knows when to cancel: with `verbose` there are fewer cancels
than subscribes.

Subscriptions are applied as they arrive, up to the first ordinary message of a peer. Those behind
an ordinary message wait until the application has received it, so that a peer cannot fill the
memory. Up to NOTES_BYTES of unread notifications are kept. Later ones are dropped, and the socket
counts them as `full`."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strcmp

from mqcore.base.fifo cimport Fifo, fifo_fini, fifo_put, fifo_take
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_LAST, MSG_MORE, MSG_NOTE, MSG_SUBSCRIBE, Msg, MsgVec,
    msg_close, msg_data, msg_init, msg_init_copy, msg_init_ref, msg_size, vec_clear, vec_fini,
)
from mqcore.base.slab cimport Owner, heap_new, owner_data
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_NOMEM, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.base.ypipe cimport ypipe_peek
from mqcore.protocols.routing.fair_queue cimport vec_cut, wash
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.publish cimport (
    Publisher, SUB_EDGE, SUB_NOTHING, Subscriber, pub_ask, pub_attach, pub_cancel, pub_detach,
    pub_fini, pub_init, pub_send, pub_set_option, pub_strip, pub_subscribe, pub_subscribers,
    pub_unask,
)
from mqcore.protocols.routing.ring cimport (
    MARK_GONE, Ring, ring_drop, ring_fini, ring_front, ring_join, ring_leave, ring_put, ring_turn,
)
from mqcore.protocols.routing.stub cimport no_event
from mqcore.spi.pattern cimport (
    PAT_FANOUT, PAT_RECV, PAT_SEND, PAT_SERVICE, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Q_SUBSCRIBERS,
    Pattern, PatternOps, plugin_new,
)
from mqcore.spi.lane cimport lane_show
from mqcore.spi.pipe cimport (
    DIRTY_HUNG, DIRTY_IN, DROP_FULL, EV_DROPPED, Host, Pipe, pipe_delivered, pipe_drop_in,
    pipe_emptied, pipe_read, pipe_touch, pipe_write_always,
)

cdef enum:
    NOTES_BYTES = 16 << 20    # of unread notifications

cdef struct XPub:
    Publisher base
    Ring talkers              # pipes whose next message is an ordinary one
    Peers numbers             # peers that can still be subscribed, by Pipe.id
    Fifo notes                # of subscriptions
    MsgVec scratch
    uint32_t last             # Pipe.id of the last received notification
    bint verbose, verboser, manual
    bint missing              # a run of notifications that found no space
    uint8_t* welcome
    size_t welcome_size


cdef int xpub_init(Pattern* self) noexcept nogil:
    pub_init(<Publisher*> self)
    return MQ_OK


cdef void xpub_fini(Pattern* self) noexcept nogil:
    cdef XPub* x = <XPub*> self
    pub_fini(&x.base)
    ring_fini(&x.talkers)
    peers_fini(&x.numbers)
    fifo_fini(&x.notes)
    vec_fini(&x.scratch)
    free(x.welcome)


cdef int xpub_set_welcome(XPub* x, const uint8_t* data, size_t size) noexcept nogil:
    cdef uint8_t* welcome = NULL
    if size:
        welcome = <uint8_t*> malloc(size)
        if welcome == NULL:
            return MQ_NOMEM
        memcpy(welcome, data, size)
    free(x.welcome)
    x.welcome = welcome
    x.welcome_size = size
    return MQ_OK


cdef int xpub_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                         size_t size) noexcept nogil:
    cdef XPub* x = <XPub*> self
    if strcmp(name, "welcome") == 0:
        return xpub_set_welcome(x, data, size)
    if strcmp(name, "verbose") == 0:
        x.verbose = number != 0
    elif strcmp(name, "verboser") == 0:
        x.verboser = number != 0
    elif strcmp(name, "manual") == 0:
        x.manual = number != 0
    else:
        return pub_set_option(&x.base, name, number)
    return MQ_OK


# -- notifications ---------------------------------------------------------------------------------

cdef int note_init(Msg* m, XPub* x, uint8_t what, const uint8_t* topic, size_t size) noexcept nogil:
    cdef Owner* owner
    msg_init(m)
    if size < MSG_INLINE_MAX:
        m.size8 = <uint8_t> (size + 1)
    else:
        owner = heap_new(x.base.head.host.pool, size + 1)
        if owner == NULL:
            return MQ_NOMEM
        msg_init_ref(m, owner, owner_data(owner), size + 1)
    msg_data(m)[0] = what
    if size:
        memcpy(msg_data(m) + 1, topic, size)
    return MQ_OK


cdef void xpub_note(XPub* x, Pipe* pipe, uint8_t what, const uint8_t* topic, size_t size,
                    bint last=False) noexcept nogil:
    """Without memory, or above NOTES_BYTES, the application misses a notification, which is
    counted. The subscription itself is applied."""
    cdef Msg m
    cdef int64_t memory = x.notes.bytes + <int64_t> ((x.notes.n + 1) * sizeof(Msg) + size)
    if memory > NOTES_BYTES or note_init(&m, x, what, topic, size):
        xpub_missed(x)
        return
    m.peer = pipe.id
    m.flags = MSG_NOTE | (MSG_LAST if last else 0)
    if fifo_put(&x.notes, &m, 1):
        msg_close(&m)
        xpub_missed(x)


cdef void xpub_missed(XPub* x) noexcept nogil:
    cdef Host* host = x.base.head.host
    cdef uint8_t reason = DROP_FULL
    host.dropped[DROP_FULL] += 1
    if not x.missing and host.watched.load():
        host.emit(host, EV_DROPPED, NULL, &reason, 1)
    x.missing = True          # one event per run, which ends when the application receives


cdef void xpub_subscribed(XPub* x, Pipe* pipe, const uint8_t* topic, size_t size) noexcept nogil:
    cdef int change = pub_subscribe(&x.base, pipe, topic, size)
    if change >= 0 and (change & SUB_EDGE or x.verbose or x.verboser):
        xpub_note(x, pipe, 1, topic, size)


cdef void xpub_take(XPub* x, Pipe* pipe, Msg* m) noexcept nogil:
    """Handle a peer's subscription or cancel, in either form."""
    cdef uint8_t* topic = msg_data(m)
    cdef size_t size = msg_size(m)
    cdef bint on = m.flags & MSG_SUBSCRIBE
    cdef int change
    if not m.flags & MSG_CONTROL:
        pipe_delivered(pipe)  # it was transmitted as a message, and this socket is its destination
        on = topic[0]
        topic += 1
        size -= 1
    if pipe.mark & MARK_GONE:
        return
    if x.manual:
        if pub_ask(&x.base, pipe, topic, size, on):
            xpub_note(x, pipe, 1 if on else 0, topic, size)
    elif on:
        xpub_subscribed(x, pipe, topic, size)
    else:
        change = pub_cancel(&x.base, pipe, topic, size)
        if change & SUB_EDGE or x.verboser:
            xpub_note(x, pipe, 0, topic, size, change & SUB_EDGE)


cdef inline bint about_topics(Msg* m) noexcept nogil:
    if m.flags & MSG_CONTROL:
        return True
    return not m.flags & MSG_MORE and msg_size(m) > 0 and msg_data(m)[0] <= 1


cdef bint xpub_service(XPub* x, Pipe* pipe) noexcept nogil:
    """Apply the subscriptions before a pipe's first ordinary message. True: there is such a
    message."""
    cdef Msg* m
    while True:
        m = ypipe_peek(&pipe.inn.q)
        if m == NULL:
            if lane_show(pipe.inn):
                pipe_touch(pipe, DIRTY_IN)
            if pipe.dirty & DIRTY_HUNG:
                pipe_emptied(pipe)
            return False
        if not about_topics(m):
            return True
        if pipe_read(pipe, &x.scratch) == MQ_OK:
            xpub_take(x, pipe, &x.scratch.at[0])
        elif not m.flags & MSG_CONTROL:
            pipe_drop_in(pipe, DROP_FULL)
        vec_clear(&x.scratch)


# -- peers -----------------------------------------------------------------------------------------

cdef void xpub_welcome(XPub* x, Pipe* pipe) noexcept nogil:
    cdef Msg m
    if x.welcome_size == 0 or msg_init_copy(&m, pipe.host.pool, x.welcome, x.welcome_size):
        return
    if pipe_write_always(pipe, &m, 1):
        msg_close(&m)


cdef int xpub_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef XPub* x = <XPub*> self
    cdef int rc = ring_join(&x.talkers, pipe)
    if rc:
        return rc
    rc = peers_add(&x.numbers, hash_number(pipe.id), pipe)
    if rc == MQ_OK:
        rc = pub_attach(&x.base, pipe)
        if rc:
            peers_remove(&x.numbers, hash_number(pipe.id), pipe)
    if rc:
        ring_leave(&x.talkers, pipe)
        return rc
    xpub_welcome(x, pipe)
    if pipe.unversioned:
        xpub_subscribed(x, pipe, NULL, 0)
    return MQ_OK


cdef void xpub_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef XPub* x = <XPub*> self
    cdef size_t size = 0
    cdef int change
    pipe.mark |= MARK_GONE
    peers_remove(&x.numbers, hash_number(pipe.id), pipe)
    while pub_unask(&x.base, pipe, &size):
        xpub_note(x, pipe, 0, x.base.path, size)
    while True:
        change = pub_strip(&x.base, pipe, &size)
        if change == SUB_NOTHING:
            return
        if (change & SUB_EDGE or x.verboser) and not x.manual:
            xpub_note(x, pipe, 0, x.base.path, size, change & SUB_EDGE)


cdef void xpub_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    xpub_hangup(self, pipe)
    ring_leave(&(<XPub*> self).talkers, pipe)
    pub_detach(<Publisher*> self, pipe)


cdef void xpub_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef XPub* x = <XPub*> self
    if xpub_service(x, pipe):
        ring_put(&x.talkers, pipe)


# -- the application -------------------------------------------------------------------------------

cdef int xpub_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef XPub* x = <XPub*> self
    cdef size_t at = out.n
    cdef Pipe* p
    cdef int rc
    if x.notes.n:
        rc = fifo_take(&x.notes, out)
        if rc == MQ_OK:
            x.last = out.at[at].peer
            x.missing = False
        return rc
    p = ring_front(&x.talkers)
    if p == NULL:
        return MQ_AGAIN
    rc = pipe_read(p, out)
    if rc == MQ_OK:
        wash(out.at + at, out.n - at)
        pipe_delivered(p)
    else:
        vec_cut(out, at)
        pipe_drop_in(p, DROP_FULL)
    if xpub_service(x, p):
        ring_turn(&x.talkers)
    else:
        ring_drop(&x.talkers)
    return rc


cdef int xpub_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    cdef XPub* x = <XPub*> self
    cdef Pipe* pipe
    if not x.manual:
        return MQ_UNSUPPORTED
    if x.last == 0:
        return MQ_STATE
    pipe = peers_number(&x.numbers, x.last)
    if pipe == NULL:          # it has left, and all of its subscriptions with it
        return MQ_OK
    if not on:
        pub_cancel(&x.base, pipe, topic, size)
    elif pub_subscribe(&x.base, pipe, topic, size) < 0 and not (<Subscriber*> pipe.data).cut:
        return MQ_NOMEM
    return MQ_OK


cdef int64_t xpub_query(Pattern* self, uint32_t what, const uint8_t* data,
                        size_t size) noexcept nogil:
    cdef XPub* x = <XPub*> self
    if what == Q_SUBSCRIBERS:
        return pub_subscribers(&x.base, data, size)
    if what == Q_CAN_RECV:
        return x.notes.n > 0 or ring_front(&x.talkers) != NULL
    return 1 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_FANOUT | PAT_SERVICE,
    size=sizeof(XPub),
    init=xpub_init,
    fini=xpub_fini,
    set_option=xpub_set_option,
    attach=xpub_attach,
    detach=xpub_detach,
    hangup=xpub_hangup,
    readable=xpub_readable,
    writable=no_event,
    send=pub_send,
    recv=xpub_recv,
    send_to=NULL,
    subscribe=xpub_subscribe,
    abandon=NULL,
    query=xpub_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "xpub", 9, "XPUB", 0x20, ("sub", "xsub"),
    (
        ("verbose", "bool", False, "notify of every subscribe, not only of a topic's first"),
        ("verboser", "bool", False, "notify of every subscribe and of every cancel"),
        ("manual", "bool", False, "apply subscriptions only by subscribe()"),
        ("welcome", "bytes", None, "a message that each new peer gets first"),
        ("nodrop", "bool", False, "wait for full subscribers instead of dropping"),
        ("retain", "int", 0, "the last n messages per first part, sent to each new subscription"),
        ("max_subscription_bytes", "size", 16 << 20,
         "limit of one peer's subscriptions: bytes of its topics or groups plus 64 for each; a "
         "peer that exceeds it is disconnected"),
    ),
    "a PUB whose application sees the subscriptions",
)
