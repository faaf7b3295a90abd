"""RADIO: sends each message to all peers that joined its group (RFC 48). Peers: DISH.

A message is [group, body], the group flagged MSG_GROUP. A single part is a body for the empty
group. Other messages are refused. A group has at most 255 bytes and is compared as a whole.
Otherwise it is a publisher: it never blocks, and a message to a peer at its HWM is
dropped and counted, unless `nodrop`. A message without a member of its group is `unmatched`.

A peer that never announces its groups (`Pipe.unversioned`: udp) gets every message.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport (
    MSG_CONTROL, MSG_GROUP, MSG_MORE, MSG_SUBSCRIBE, Msg, MsgVec, msg_data, msg_init, msg_size,
    vec_clear, vec_fini,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_INVALID, MQ_OK
from mqcore.protocols.routing.distribute cimport (
    Targets, targets_fini, targets_hit_all, targets_join, targets_leave,
)
from mqcore.protocols.routing.groups cimport GROUP_MAX
from mqcore.protocols.routing.publish cimport (
    Publisher, SUB_NOTHING, pub_attach, pub_cancel, pub_detach, pub_exactly, pub_fini, pub_give,
    pub_init, pub_set_option, pub_strip, pub_subscribe,
)
from mqcore.protocols.routing.ring cimport MARK_GONE
from mqcore.protocols.routing.stub cimport no_event, no_recv
from mqcore.spi.pattern cimport (
    PAT_FANOUT, PAT_GROUPS, PAT_SEND, PAT_SERVICE, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND,
    Q_SUBSCRIBERS, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport DROP_FULL, DROP_UNEXPECTED, Pipe, pipe_drop_in, pipe_read

cdef struct Radio:
    Publisher base
    Targets open              # peers that get every message
    MsgVec scratch


cdef int radio_init(Pattern* self) noexcept nogil:
    pub_init(<Publisher*> self)
    return MQ_OK


cdef void radio_fini(Pattern* self) noexcept nogil:
    pub_fini(<Publisher*> self)
    targets_fini(&(<Radio*> self).open)
    vec_fini(&(<Radio*> self).scratch)


cdef int radio_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                          size_t size) noexcept nogil:
    return pub_set_option(<Publisher*> self, name, number)


# -- peers -----------------------------------------------------------------------------------------

cdef int radio_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef int rc = pub_attach(<Publisher*> self, pipe)
    pipe.out_at = -1
    if rc == MQ_OK and pipe.unversioned:
        rc = targets_join(&(<Radio*> self).open, pipe)
        if rc:
            pub_detach(<Publisher*> self, pipe)
    return rc


cdef void radio_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef size_t size = 0
    pipe.mark |= MARK_GONE
    targets_leave(&(<Radio*> self).open, pipe)
    while pub_strip(<Publisher*> self, pipe, &size) != SUB_NOTHING:
        pass


cdef void radio_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    radio_hangup(self, pipe)
    pub_detach(<Publisher*> self, pipe)


cdef void radio_take(Radio* radio, Pipe* pipe, Msg* m) noexcept nogil:
    """Handle a control handle of a peer. No message can match a group that is too long. A peer that
    gets everything must not get a message twice."""
    cdef size_t size = msg_size(m)
    if pipe.mark & MARK_GONE or pipe.unversioned or size > GROUP_MAX:
        return
    if m.flags & MSG_SUBSCRIBE:
        pub_subscribe(&radio.base, pipe, msg_data(m), size)
    else:
        pub_cancel(&radio.base, pipe, msg_data(m), size)


cdef void radio_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Radio* radio = <Radio*> self
    cdef int rc
    while True:
        rc = pipe_read(pipe, &radio.scratch)
        if rc == MQ_AGAIN:
            return
        if rc != MQ_OK:
            pipe_drop_in(pipe, DROP_FULL)
        elif radio.scratch.at[0].flags & MSG_CONTROL:
            radio_take(radio, pipe, &radio.scratch.at[0])
        else:
            pipe_drop_in(pipe, DROP_UNEXPECTED)
        vec_clear(&radio.scratch)


# -- messages --------------------------------------------------------------------------------------

cdef int radio_collect(Radio* radio, const uint8_t* group, size_t size) noexcept nogil:
    """Collect the members of the group, and the peers that get everything. Status."""
    cdef int rc = pub_exactly(&radio.base, group, size)
    return rc if rc else targets_hit_all(&radio.base.hits, radio.open.at, radio.open.n)


cdef int radio_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Radio* radio = <Radio*> self
    cdef Msg[2] whole
    cdef int rc
    if n == 1:
        msg_init(&whole[0])
        whole[0].flags = MSG_MORE
        whole[1] = parts[0]
        parts = whole
    elif n != 2 or not parts[0].flags & MSG_GROUP or msg_size(&parts[0]) > GROUP_MAX:
        return MQ_INVALID
    rc = radio_collect(radio, msg_data(&parts[0]), msg_size(&parts[0]))
    return rc if rc else pub_give(&radio.base, parts, 2)


cdef int64_t radio_query(Pattern* self, uint32_t what, const uint8_t* data,
                         size_t size) noexcept nogil:
    cdef Radio* radio = <Radio*> self
    if what == Q_SUBSCRIBERS:
        radio_collect(radio, data, size)
        return radio.base.hits.n
    if what == Q_CAN_SEND:
        return 1
    return 0 if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_FANOUT | PAT_SERVICE | PAT_GROUPS,
    size=sizeof(Radio),
    init=radio_init,
    fini=radio_fini,
    set_option=radio_set_option,
    attach=radio_attach,
    detach=radio_detach,
    hangup=radio_hangup,
    readable=radio_readable,
    writable=no_event,
    send=radio_send,
    recv=no_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=NULL,
    query=radio_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "radio", -1, "RADIO", -1, ("dish",),
    (
        ("nodrop", "bool", False, "wait for full subscribers instead of dropping"),
        ("max_subscription_bytes", "size", 16 << 20,
         "limit of one peer's subscriptions: bytes of its topics or groups plus 64 for each; a "
         "peer that exceeds it is disconnected"),
    ),
    "sends each message to all members of its group",
)
