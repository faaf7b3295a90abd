"""PUB: sends each message to all peers that subscribed to a prefix of its first part. Peers: SUB,
XSUB.

Never blocks: a message to a peer at its HWM is dropped and counted, unless `nodrop`.
Messages without a subscriber are counted as `unmatched`. Subscriptions arrive as control handles
or, from older peers, as messages that start with 01 or 00. They are applied as they arrive, without
a call of the application. Any other message of a peer is dropped and counted."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport (
    MSG_CONTROL, MSG_SUBSCRIBE, Msg, MsgVec, msg_data, msg_size, vec_clear, vec_fini,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_OK
from mqcore.protocols.routing.publish cimport (
    Publisher, SUB_NOTHING, pub_attach, pub_cancel, pub_detach, pub_fini, pub_init, pub_send,
    pub_set_option, pub_strip, pub_subscribe, pub_subscribers,
)
from mqcore.protocols.routing.ring cimport MARK_GONE
from mqcore.protocols.routing.stub cimport no_event, no_recv
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_FANOUT, PAT_SEND, PAT_SERVICE, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND,
    Q_SUBSCRIBERS, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_UNEXPECTED, Pipe, pipe_delivered, pipe_drop_in, pipe_read,
)

cdef struct Pub:
    Publisher base
    MsgVec scratch


cdef int pubsock_init(Pattern* self) noexcept nogil:
    pub_init(<Publisher*> self)
    return MQ_OK


cdef void pubsock_fini(Pattern* self) noexcept nogil:
    pub_fini(<Publisher*> self)
    vec_fini(&(<Pub*> self).scratch)


cdef int pubsock_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                            size_t size) noexcept nogil:
    return pub_set_option(<Publisher*> self, name, number)


cdef int pubsock_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef int rc = pub_attach(<Publisher*> self, pipe)
    if rc == MQ_OK and pipe.unversioned:
        pub_subscribe(<Publisher*> self, pipe, NULL, 0)
    return rc


cdef void pubsock_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef size_t size = 0
    pipe.mark |= MARK_GONE
    while pub_strip(<Publisher*> self, pipe, &size) != SUB_NOTHING:
        pass


cdef void pubsock_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    pubsock_hangup(self, pipe)
    pub_detach(<Publisher*> self, pipe)


cdef void pubsock_take(Pub* pub, Pipe* pipe, Msg* m) noexcept nogil:
    """Handle one single-part message or control handle of a peer."""
    cdef uint8_t* topic = msg_data(m)
    cdef size_t size = msg_size(m)
    cdef bint on = m.flags & MSG_SUBSCRIBE
    if not m.flags & MSG_CONTROL:
        if size == 0 or topic[0] > 1:
            pipe_drop_in(pipe, DROP_UNEXPECTED)
            return
        pipe_delivered(pipe)  # it was transmitted as a message, and this socket is its destination
        on = topic[0]
        topic += 1
        size -= 1
    if pipe.mark & MARK_GONE:
        return
    if on:
        pub_subscribe(&pub.base, pipe, topic, size)
    else:
        pub_cancel(&pub.base, pipe, topic, size)


cdef void pubsock_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Pub* pub = <Pub*> self
    cdef int rc
    while True:
        rc = pipe_read(pipe, &pub.scratch)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK and pub.scratch.n == 1:
            pubsock_take(pub, pipe, &pub.scratch.at[0])
        else:
            pipe_drop_in(pipe, DROP_UNEXPECTED if rc == MQ_OK else DROP_FULL)
        vec_clear(&pub.scratch)


cdef int64_t pubsock_query(Pattern* self, uint32_t what, const uint8_t* data,
                           size_t size) noexcept nogil:
    if what == Q_SUBSCRIBERS:
        return pub_subscribers(<Publisher*> self, data, size)
    if what == Q_CAN_SEND:
        return 1
    return 0 if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_FANOUT | PAT_SERVICE | PAT_CONFLATE,
    size=sizeof(Pub),
    init=pubsock_init,
    fini=pubsock_fini,
    set_option=pubsock_set_option,
    attach=pubsock_attach,
    detach=pubsock_detach,
    hangup=pubsock_hangup,
    readable=pubsock_readable,
    writable=no_event,
    send=pub_send,
    recv=no_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=pubsock_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "pub", 1, "PUB", 0x20, ("sub", "xsub"),
    (
        ("nodrop", "bool", False, "wait for full subscribers instead of dropping"),
        ("retain", "int", 0, "the last n messages per first part, sent to each new subscription"),
        ("max_subscription_bytes", "size", 16 << 20,
         "limit of one peer's subscriptions: bytes of its topics or groups plus 64 for each; a "
         "peer that exceeds it is disconnected"),
    ),
    "sends to all peers that subscribed to a prefix of the first part",
)
