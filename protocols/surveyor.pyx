"""SURVEYOR: asks all peers at once, takes their answers until a deadline. Peers: RESPONDENT.

A survey is [id, 4 bytes with the top bit set], an empty part, the body; an answer looks the same.
It goes to all peers that are there at that moment and waits for nobody: a peer at its mark misses
it, counted. Answers with the id of an open survey are delivered; others are late, counted. The
next survey cancels the one before.

At its deadline a survey is closed: what has arrived by then may still be received, then one receive
says MQ_OVER, and later ones MQ_STATE. That is looked at in each receive, and the alarm wakes those
that wait.

Each context is a survey of its own (`Survey`), number 0 the socket's; an answer names its survey by
the id. A receive reads from the peers in turn until it finds one of its own; those of other surveys
go to their queues. A queue holds at most recv_hwm answers for each peer that is there, and drops
more, counted; as long as there is one survey only, answers stay with the peers, where their marks
hold. When no survey is open, what arrives is dropped at once.

    state      send           recv                            deadline    abandon
    IDLE       -> OPEN        MQ_STATE                        -           -
    OPEN       cancels,       an answer or MQ_AGAIN           -> OVER     -> IDLE
               -> OPEN
    OVER       cancels,       what is queued, then MQ_OVER,   -           -> IDLE
               -> OPEN        -> IDLE

With `raw` there are no surveys: what is sent goes to all peers as it is, envelope included, and
what they answer is received as it is.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove, strcmp

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_init, msg_size, vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport (
    MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_OVER, MQ_STATE,
)
from mqcore.protocols.routing.distribute cimport targets_fini, targets_join, targets_leave
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable, fq_recv, fq_waiting, vec_cut,
)
from mqcore.protocols.routing.fanout cimport Fanout, fanout_send, fanout_set_option
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.stub cimport close_all, no_event
from mqcore.protocols.routing.words cimport ID_BIT, id_init, word_get
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_FANOUT, PAT_RECV, PAT_SEND, PAT_SERVICE, PAT_WORDS, PATTERN_ABI, Q_CAN_RECV,
    Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_LATE, DROP_MALFORMED, Pipe, host_alarm, pipe_delivered, pipe_drop_in,
)

cdef enum:
    IDLE = 0
    OPEN = 1
    OVER = 2                  # no more answers are taken; the application has not been told yet

cdef enum:
    FRONT = 2                 # parts in front of a body: the id and the empty one
    NEVER = -1                # Survey.limit: as the socket's

cdef struct Survey:
    uint32_t context          # 0: the socket's own
    int state
    uint32_t id               # OPEN: its answers carry it
    int64_t end               # OPEN: when it is over, ns
    int64_t limit             # ns that the next one lasts, or NEVER
    MsgVec queue              # answers read and not yet received, the next one at `head`
    size_t head
    size_t waiting            # how many
    Survey* next

cdef struct Surveyor:
    Pattern head
    FairQueue inn
    Fanout out
    Peers numbers             # by Pipe.id: who has answers to be read
    Survey own
    Survey* all               # `own` is the last
    uint32_t open             # how many of them are
    uint32_t id               # of the last survey
    int64_t limit             # ns, option `deadline`
    MsgVec wire               # scratch: the survey as it goes out
    bint raw


cdef int surveyor_init(Pattern* self) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    s.id = <uint32_t> (
        (<uint64_t> now_ns() ^ <uint64_t> <size_t> self) * <uint64_t> 0x9e3779b97f4a7c15 >> 32)
    s.limit = 1000000000
    s.own.limit = NEVER
    s.all = &s.own
    return MQ_OK


cdef void surveyor_fini(Pattern* self) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey* survey
    while s.all != &s.own:
        survey = s.all
        s.all = survey.next
        vec_fini(&survey.queue)
        free(survey)
    vec_fini(&s.own.queue)
    vec_fini(&s.wire)
    fq_fini(&s.inn)
    targets_fini(&s.out.peers)
    peers_fini(&s.numbers)


cdef Survey* surveyor_of(Surveyor* s, uint32_t context) noexcept nogil:
    cdef Survey* survey = s.all
    while survey != NULL and survey.context != context:
        survey = survey.next
    return survey


cdef Survey* surveyor_by_id(Surveyor* s, uint32_t id) noexcept nogil:
    cdef Survey* survey = s.all
    while survey != NULL and (survey.state != OPEN or survey.id != id):
        survey = survey.next
    return survey


# -- a survey's queue ------------------------------------------------------------------------------

cdef bint queue_full(Surveyor* s, Survey* survey, Pipe* p) noexcept nogil:
    cdef int64_t most = p.inn.hwm_msgs
    return most < INT64_MAX // 65536 and <int64_t> survey.waiting >= most * <int64_t> s.numbers.n


cdef int queue_put(Survey* survey, Msg* parts, size_t n) noexcept nogil:
    cdef MsgVec* q = &survey.queue
    cdef size_t i
    if survey.head * 2 > q.n:          # more than half was received: close up
        q.n -= survey.head
        memmove(q.at, q.at + survey.head, q.n * sizeof(Msg))
        survey.head = 0
    if q.cap - q.n < n and vec_grow(q, q.n + n):
        return MQ_NOMEM
    for i in range(n):
        vec_push(q, &parts[i])
    survey.waiting += 1
    return MQ_OK


cdef int queue_take(Survey* survey, MsgVec* out) noexcept nogil:
    """The next answer, whole; there is one."""
    cdef MsgVec* q = &survey.queue
    cdef size_t n = 1
    cdef size_t i
    while q.at[survey.head + n - 1].flags & MSG_MORE:
        n += 1
    if out.cap - out.n < n and vec_grow(out, out.n + n):
        return MQ_NOMEM
    for i in range(n):
        vec_push(out, &q.at[survey.head + i])
    survey.head += n
    survey.waiting -= 1
    if survey.waiting == 0:
        q.n = 0
        survey.head = 0
    return MQ_OK


cdef void queue_drop(Surveyor* s, Survey* survey) noexcept nogil:
    """Nobody will receive what is in it: late, and not delivered after all."""
    cdef MsgVec* q = &survey.queue
    cdef Pipe* p
    cdef Msg* m
    while survey.head < q.n:
        m = &q.at[survey.head]
        if not m.flags & MSG_MORE:
            p = peers_number(&s.numbers, m.peer)
            if p == NULL:     # its account is closed
                s.head.host.dropped[DROP_LATE] += 1
            else:
                p.delivered -= 1
                pipe_drop_in(p, DROP_LATE)
        msg_close(m)
        survey.head += 1
    q.n = 0
    survey.head = 0
    survey.waiting = 0


# -- answers ---------------------------------------------------------------------------------------

cdef bint answer_well_formed(Msg* parts, size_t n) noexcept nogil:
    return (n > FRONT and msg_size(&parts[0]) == 4 and msg_data(&parts[0])[0] & 0x80
            and msg_size(&parts[1]) == 0)


cdef int surveyor_read(Surveyor* s, Survey* want, MsgVec* out) noexcept nogil:
    """Reads until there is an answer to `want` (NULL: until nothing is left); it goes to out
    without its envelope, those of other open surveys to their queues. MQ_OK, MQ_AGAIN, MQ_NOMEM."""
    cdef size_t at = out.n
    cdef Survey* survey
    cdef Pipe* p = NULL
    cdef size_t i
    cdef int rc
    while True:
        rc = fq_read(&s.inn, out, &p)
        if rc:
            return rc
        if not answer_well_formed(out.at + at, out.n - at):
            pipe_drop_in(p, DROP_MALFORMED)
            vec_cut(out, at)
            continue
        survey = surveyor_by_id(s, word_get(msg_data(&out.at[at])))
        if survey == NULL:
            pipe_drop_in(p, DROP_LATE)
            vec_cut(out, at)
        elif survey != want and (queue_full(s, survey, p) or queue_put(
                survey, out.at + at + FRONT, out.n - at - FRONT)):
            pipe_drop_in(p, DROP_FULL)
            vec_cut(out, at)
        else:
            pipe_delivered(p)
            close_all(out.at + at, FRONT)
            if survey == want:
                for i in range(at + FRONT, out.n):
                    out.at[i - FRONT] = out.at[i]
                out.n -= FRONT
                return MQ_OK
            out.n = at        # the rest was moved


cdef void surveyor_sort(Surveyor* s) noexcept nogil:
    """All that has arrived goes to the queue of its survey, or is dropped."""
    while surveyor_read(s, NULL, &s.inn.scratch) == MQ_NOMEM:
        pass


cdef void survey_close(Surveyor* s, Survey* survey, int state) noexcept nogil:
    """No more answers to an open one."""
    survey.state = state
    s.open -= 1
    if s.open == 0:
        surveyor_sort(s)      # nobody will come for them


cdef void survey_end(Surveyor* s, Survey* survey) noexcept nogil:
    """Its deadline has passed: what has arrived by now is in time."""
    surveyor_sort(s)
    survey_close(s, survey, OVER)


cdef void survey_forget(Surveyor* s, Survey* survey) noexcept nogil:
    queue_drop(s, survey)
    if survey.state == OPEN:
        survey_close(s, survey, IDLE)
    survey.state = IDLE


cdef int surveyor_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey* survey
    if s.raw:
        return fq_recv(&s.inn, out)
    survey = surveyor_of(s, self.context)
    if survey == NULL or survey.state == IDLE:
        return MQ_STATE
    if survey.state == OPEN and now_ns() >= survey.end:
        survey_end(s, survey)
    if survey.waiting:
        return queue_take(survey, out)
    if survey.state == OVER:
        survey.state = IDLE
        return MQ_OVER
    return surveyor_read(s, survey, out)


# -- surveys ---------------------------------------------------------------------------------------

cdef int surveyor_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey* survey
    cdef int64_t limit
    cdef uint32_t id
    cdef size_t i
    cdef int rc
    if s.raw:
        rc = fanout_send(&s.out, s.head.host, parts, n)
        if rc == MQ_OK:
            close_all(parts, n)
        return rc
    survey = surveyor_of(s, parts[0].peer)
    if survey == NULL:
        return MQ_STATE       # a context that has been closed
    if s.wire.cap < FRONT + n and vec_grow(&s.wire, FRONT + n):
        return MQ_NOMEM
    id = (s.id + 1) | ID_BIT
    id_init(&s.wire.at[0], id)
    msg_init(&s.wire.at[1])
    s.wire.at[1].flags = MSG_MORE
    for i in range(n):
        s.wire.at[FRONT + i] = parts[i]
    rc = fanout_send(&s.out, s.head.host, s.wire.at, FRONT + n)
    if rc:
        return rc
    close_all(parts, n)
    survey_forget(s, survey)
    limit = s.limit if survey.limit == NEVER else survey.limit
    survey.limit = NEVER
    s.id = id
    survey.id = id
    survey.state = OPEN
    survey.end = INT64_MAX
    s.open += 1
    if limit != INT64_MAX:
        survey.end = now_ns() + limit
        host_alarm(s.head.host, survey.end)
    return MQ_OK


cdef void surveyor_abandon(Pattern* self) noexcept nogil:
    cdef Survey* survey = surveyor_of(<Surveyor*> self, self.context)
    if survey != NULL:
        survey_forget(<Surveyor*> self, survey)


cdef void surveyor_alarm(Pattern* self, int64_t now) noexcept nogil:
    """Closes what is over; the next one in line sets the next alarm."""
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey* survey = s.all
    while survey != NULL:
        if survey.state == OPEN and survey.end <= now:
            survey_end(s, survey)
        elif survey.state == OPEN and survey.end != INT64_MAX:
            host_alarm(s.head.host, survey.end)
        survey = survey.next


cdef int surveyor_context(Pattern* self, uint32_t number, bint on) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey** at = &s.all
    cdef Survey* survey
    if on:
        survey = <Survey*> calloc(1, sizeof(Survey))
        if survey == NULL:
            return MQ_NOMEM
        survey.context = number
        survey.limit = NEVER
        survey.next = s.all
        s.all = survey
        return MQ_OK
    while at[0] != NULL and at[0].context != number:
        at = &at[0].next
    survey = at[0]
    if survey == NULL or survey == &s.own:
        return MQ_OK
    survey_forget(s, survey)
    at[0] = survey.next
    vec_fini(&survey.queue)
    free(survey)
    return MQ_OK


cdef int surveyor_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                             size_t size) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey* survey
    if strcmp(name, "deadline") == 0:
        s.limit = number
        return MQ_OK
    if strcmp(name, "this_deadline") == 0:    # no row: of the next survey of this context alone
        survey = surveyor_of(s, self.context)
        if survey == NULL:
            return MQ_INVALID
        survey.limit = number
        return MQ_OK
    if strcmp(name, "raw") == 0:
        survey = s.all
        while survey != NULL:
            survey_forget(s, survey)
            survey = survey.next
        s.raw = number != 0
        s.head.host.without = PAT_EXCHANGE if s.raw else 0
        return MQ_OK
    return fanout_set_option(&s.out, name, number)


# -- peers -----------------------------------------------------------------------------------------

cdef int surveyor_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef int rc = fq_attach(&s.inn, pipe)
    if rc:
        return rc
    rc = peers_add(&s.numbers, hash_number(pipe.id), pipe)
    if rc == MQ_OK:
        rc = targets_join(&s.out.peers, pipe)
        if rc:
            peers_remove(&s.numbers, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(&s.inn, pipe)
    return rc


cdef void surveyor_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    targets_leave(&(<Surveyor*> self).out.peers, pipe)


cdef void surveyor_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    surveyor_hangup(self, pipe)
    peers_remove(&s.numbers, hash_number(pipe.id), pipe)
    fq_detach(&s.inn, pipe)


cdef void surveyor_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    fq_readable(&s.inn, pipe)
    if s.open == 0 and not s.raw:
        surveyor_sort(s)


cdef int64_t surveyor_query(Pattern* self, uint32_t what, const uint8_t* data,
                            size_t size) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    cdef Survey* survey
    if what == Q_CAN_SEND:
        return 1
    if what != Q_CAN_RECV:
        return -1
    if s.raw:
        return fq_waiting(&s.inn)
    survey = surveyor_of(s, self.context)
    if survey == NULL or survey.state == IDLE:
        return 0              # without a survey there is nothing to wait for: not readable
    if survey.state == OPEN and now_ns() >= survey.end:
        survey_end(s, survey)
    if survey.waiting == 0 and survey.state == OPEN:
        if surveyor_read(s, survey, &survey.queue) == MQ_OK:
            survey.waiting = 1
    return survey.waiting != 0 or survey.state == OVER


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_FANOUT | PAT_EXCHANGE | PAT_SERVICE | PAT_WORDS,
    size=sizeof(Surveyor),
    init=surveyor_init,
    fini=surveyor_fini,
    set_option=surveyor_set_option,
    attach=surveyor_attach,
    detach=surveyor_detach,
    hangup=surveyor_hangup,
    readable=surveyor_readable,
    writable=no_event,
    send=surveyor_send,
    recv=surveyor_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=surveyor_abandon,
    query=surveyor_query,
    context=surveyor_context,
    alarm=surveyor_alarm,
)

pattern = plugin_new(
    &OPS, "surveyor", -1, "", 0x62, ("respondent",),
    (
        ("deadline", "seconds", 1.0, "how long a survey takes answers"),
        ("nodrop", "bool", False, "wait for peers at their mark, do not drop for them"),
        ("raw", "bool", False, "the envelope is the application's: a device's end"),
    ),
    "asks all peers at once, takes their answers until a deadline",
)
