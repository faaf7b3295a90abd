"""STREAM: raw bytes, with a routing id for each connection. Peers: any program on a byte stream.

`recv` prepends the connection's id to the data (flags MSG_ROUTING_ID | MSG_MORE), and `send`
removes it. An id is five bytes generated here (`routing/names`), or the endpoint's name for its
peer (`peer_id`). The next connection of that endpoint has the same name, and it is not read before
the previous one has been read to its end. With `notify` an empty message reports a new connection,
before its data, and another reports its end, after its data. Sending an empty message closes the
connection after everything sent before, and produces no notification.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport strcmp, strlen

from mqcore.base.fifo cimport Fifo, fifo_fini, fifo_pop, fifo_put
from mqcore.base.message cimport (
    Msg, MsgVec, msg_close, msg_copy, msg_data, msg_init, msg_size, vec_grow, vec_push,
)
from mqcore.base.status cimport (
    MQ_DROPPED, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_fini, fq_read, fq_readable, fq_waiting, vec_cut,
)
from mqcore.protocols.routing.names cimport (
    Name, Names, name_free, name_is, name_new, name_of, named_write, names_enter, names_find,
    names_fini, names_init, names_leave, names_number, names_unname,
)
from mqcore.protocols.routing.ring cimport MARK_GONE
from mqcore.protocols.routing.stub cimport close_all, no_event, tell_refused
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_RAW, PAT_RECV, PAT_SEND, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern,
    PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport Pipe, parts_size, pipe_delivered, pipe_write_always

cdef enum:
    # further connections are refused while this many are unread: connecting is cheap
    NOTES_MAX = 1 << 16
    MARK_ENDED = 1            # its end has been sent
    MARK_BEHIND = 2           # an older connection of its id is still being read

cdef struct Stream:
    Pattern head
    FairQueue inn
    Names names
    Fifo notes                # ids of opened and closed connections
    bint mandatory, notify


cdef int stream_init(Pattern* self) noexcept nogil:
    cdef Stream* s = <Stream*> self
    names_init(&s.names, self.host)
    s.mandatory = True
    return MQ_OK


cdef void stream_fini(Pattern* self) noexcept nogil:
    cdef Stream* s = <Stream*> self
    fq_fini(&s.inn)
    names_fini(&s.names)
    fifo_fini(&s.notes)


cdef int stream_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                           size_t size) noexcept nogil:
    cdef Stream* s = <Stream*> self
    if strcmp(name, "mandatory") == 0:
        s.mandatory = number != 0
    elif strcmp(name, "notify") == 0:
        s.notify = number != 0
    else:
        return MQ_UNSUPPORTED
    return MQ_OK


# -- connections -----------------------------------------------------------------------------------

cdef void stream_note(Stream* s, Pipe* pipe) noexcept nogil:
    cdef Msg m
    if s.notify:
        msg_copy(&m, &name_of(pipe).id)
        if fifo_put(&s.notes, &m, 1):
            msg_close(&m)     # the application misses it, nothing else is wrong


cdef Pipe* stream_same(Stream* s, Pipe* pipe, uint32_t mark) noexcept nogil:
    """The oldest other connection of that id that has all the bits of `mark`."""
    cdef Msg* id = &name_of(pipe).id
    cdef Pipe* best = NULL
    cdef Pipe* p
    cdef size_t i
    if pipe.routing_id_size:  # a generated id is never reused
        for i in range(s.names.by_number.cap):
            p = s.names.by_number.at[i].pipe
            if (p != NULL and p != pipe and p.mark & mark == mark
                    and name_is(p, msg_data(id), msg_size(id))
                    and (best == NULL or p.id < best.id)):
                best = p
    return best


cdef const char* stream_objection(Stream* s, Name* name) noexcept nogil:
    if names_find(&s.names, msg_data(&name.id), msg_size(&name.id)) != NULL:
        return "its routing id is in use"
    if s.notes.n >= NOTES_MAX:
        return "too many connections were opened and closed unread"
    return NULL


cdef int stream_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Stream* s = <Stream*> self
    cdef Name* name = name_new(&s.names, pipe)
    cdef const char* why
    cdef int rc
    if name == NULL:
        return MQ_NOMEM
    why = stream_objection(s, name)
    if why != NULL:
        tell_refused(pipe, why, strlen(why))
        rc = MQ_STATE
    else:
        rc = names_enter(&s.names, &s.inn, pipe, name)
    if rc:
        name_free(name)
    elif stream_same(s, pipe, 0) != NULL:
        pipe.mark |= MARK_BEHIND
    else:
        stream_note(s, pipe)
    return rc


cdef void stream_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    names_unname(&(<Stream*> self).names, pipe)


cdef void stream_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Stream* s = <Stream*> self
    cdef Pipe* following = NULL
    if not pipe.mark & MARK_BEHIND:
        following = stream_same(s, pipe, MARK_BEHIND)
        if not pipe.mark & MARK_ENDED:
            stream_note(s, pipe)
    names_leave(&s.names, &s.inn, pipe)
    if following != NULL:
        following.mark &= ~(<uint32_t> MARK_BEHIND)
        stream_note(s, following)
        fq_readable(&s.inn, following)


cdef void stream_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    if not pipe.mark & MARK_BEHIND:
        fq_readable(&(<Stream*> self).inn, pipe)


# -- messages --------------------------------------------------------------------------------------

cdef int stream_write(Stream* s, Pipe* pipe, Msg* parts, size_t n) noexcept nogil:
    """Like named_write, but a full one always waits, because a dropped piece would corrupt the
    stream. A message of only empty parts is the end."""
    cdef Msg end
    cdef int rc
    if pipe == NULL or pipe.mark & MARK_GONE:
        return named_write(s.head.host, NULL, parts, n, s.mandatory)
    if parts_size(parts, n):
        return named_write(s.head.host, pipe, parts, n, True)
    msg_init(&end)
    rc = pipe_write_always(pipe, &end, 1)
    if rc == MQ_OK:
        close_all(parts, n)
        names_unname(&s.names, pipe)
        pipe.mark |= MARK_ENDED
    return rc


cdef int stream_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Stream* s = <Stream*> self
    cdef int rc
    if n < 2:
        return MQ_INVALID
    rc = stream_write(s, names_find(&s.names, msg_data(&parts[0]), msg_size(&parts[0])),
                      parts + 1, n - 1)
    if rc == MQ_OK or rc == MQ_DROPPED:
        msg_close(&parts[0])
    return rc


cdef int stream_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Stream* s = <Stream*> self
    return stream_write(s, names_number(&s.names, peer), parts, n)


cdef int stream_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Stream* s = <Stream*> self
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef Msg m
    cdef int rc
    if out.cap - at < 2 and vec_grow(out, at + 2):
        return MQ_NOMEM
    msg_init(&m)
    if s.notes.n:
        m = fifo_pop(&s.notes)
        vec_push(out, &m)
        msg_init(&m)
        m.peer = out.at[at].peer
        return vec_push(out, &m)
    vec_push(out, &m)         # reserve its place; the sender is known once the message is read
    rc = fq_read(&s.inn, out, &p)
    if rc:
        vec_cut(out, at)
        return rc
    msg_copy(&out.at[at], &name_of(p).id)
    pipe_delivered(p)
    return MQ_OK


cdef int64_t stream_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    cdef Stream* s = <Stream*> self
    if what == Q_CAN_SEND:    # only the message names its receiver
        return 1
    if what == Q_CAN_RECV:
        return s.notes.n > 0 or fq_waiting(&s.inn)
    return -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_ADDRESSES | PAT_RAW,
    size=sizeof(Stream),
    init=stream_init,
    fini=stream_fini,
    set_option=stream_set_option,
    attach=stream_attach,
    detach=stream_detach,
    hangup=stream_hangup,
    readable=stream_readable,
    writable=no_event,
    send=stream_send,
    recv=stream_recv,
    send_to=stream_send_to,
    subscribe=NULL,
    abandon=NULL,
    query=stream_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "stream", -1, "", -1, ("stream",),
    (
        ("mandatory", "bool", True,
         "raise for an unknown or full peer instead of dropping (stream: wait for a full one)"),
        ("notify", "bool", False, "report new and closed connections by empty messages"),
    ),
    "raw bytes, with a routing id for each connection",
)
