"""SURVEYOR: asks all peers at once and collects their answers until a deadline. Peers: RESPONDENT.

A survey is [id of 4 bytes with the top bit set], an empty part, the body. An answer has the same
form. A survey goes to all connected peers and waits for none: a peer at its HWM misses
it, counted. Answers with the id of an open survey are delivered. Others are late and counted. A new
survey cancels the previous one.

A survey is closed at its deadline. Answers that have arrived by then can still be received. Then
one receive returns MQ_OVER, and later ones MQ_STATE. Each receive checks the deadline, and the
alarm wakes waiters.

Each context has its own survey (`Survey`), number 0 is the socket's; the id tells which survey an
answer belongs to. A receive reads from the peers in turn until it finds an answer to its survey,
and moves those of other surveys to their queues. A queue holds at most recv_hwm answers per
connected peer, and drops and counts more. With a single survey, answers stay with the peers, under
their HWMs. Without an open survey, arriving answers are dropped at once.

STATES and TRANSITIONS have what each call and event does in each state.

With `raw` there are no surveys: messages go unchanged to all peers, including the envelope, and
answers are received unchanged.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_data, msg_init, msg_size, vec_fini, vec_grow,
)
from mqcore.base.status cimport (
    MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_OVER, MQ_STATE,
)
from mqcore.protocols.routing.distribute cimport targets_fini, targets_join, targets_leave
from mqcore.protocols.routing.fair_queue cimport (
    fq_attach, fq_detach, fq_fini, fq_read, fq_readable, fq_recv, fq_waiting, vec_cut,
)
from mqcore.protocols.routing.fanout cimport fanout_send, fanout_set_option
from mqcore.protocols.routing.peers cimport hash_number, peers_add, peers_fini, peers_remove
from mqcore.protocols.routing.stub cimport close_all, no_event
from mqcore.protocols.routing.survey cimport (
    FRONT, IDLE, NEVER, OPEN, OVER, Survey, Surveyor, queue_drop, queue_full, queue_put,
    queue_take, surveyor_by_id, surveyor_of,
)
from mqcore.protocols.routing.words cimport ID_BIT, id_init, word_get
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_FANOUT, PAT_RECV, PAT_SEND, PAT_SERVICE, PAT_WORDS, PATTERN_ABI, Q_CAN_RECV,
    Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_LATE, DROP_MALFORMED, Pipe, host_alarm, host_chance, host_now, pipe_delivered,
    pipe_drop_in,
)

# A state of a survey, its number, what it means.
STATES = (
    ("IDLE", IDLE, "no survey"),
    ("OPEN", OPEN, "answers are taken until the deadline"),
    ("OVER", OVER, "no more answers are taken; the application has not been told"),
)

# In a state, a call or an event, the state that follows, what a call returns (MQ_*). What is not
# here does nothing. `tests/unit/protocols/test_transitions.py` drives a SURVEYOR through all of
# them.
TRANSITIONS = (
    ("IDLE", "send", "OPEN", "OK"),
    ("IDLE", "recv", "IDLE", "STATE"),
    ("OPEN", "send", "OPEN", "OK"),
    ("OPEN", "recv", "OPEN", "AGAIN"),
    ("OPEN", "recv, answered", "OPEN", "OK"),
    ("OPEN", "abandon", "IDLE", ""),
    ("OPEN", "the deadline passes", "OVER", ""),
    ("OVER", "send", "OPEN", "OK"),
    ("OVER", "recv", "IDLE", "OVER"),
    ("OVER", "recv, answered", "OVER", "OK"),
    ("OVER", "abandon", "IDLE", ""),
)


cdef int surveyor_init(Pattern* self) noexcept nogil:
    cdef Surveyor* s = <Surveyor*> self
    s.id = <uint32_t> (host_chance(self.host) >> 32)
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


# -- answers ---------------------------------------------------------------------------------------

cdef bint answer_well_formed(Msg* parts, size_t n) noexcept nogil:
    return (n > FRONT and msg_size(&parts[0]) == 4 and msg_data(&parts[0])[0] & 0x80
            and msg_size(&parts[1]) == 0)


cdef int surveyor_read(Surveyor* s, Survey* want, MsgVec* out) noexcept nogil:
    """Read until there is an answer to `want` (NULL: until nothing is left). It goes to out without
    its envelope, answers to other open surveys go to their queues. MQ_OK, MQ_AGAIN, MQ_NOMEM."""
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
            out.n = at        # the other parts were moved


cdef void surveyor_sort(Surveyor* s) noexcept nogil:
    """Move all arrived answers to the queues of their surveys, or drop them."""
    while surveyor_read(s, NULL, &s.inn.scratch) == MQ_NOMEM:
        pass


cdef void survey_close(Surveyor* s, Survey* survey, int state) noexcept nogil:
    """An open survey takes no more answers."""
    survey.state = state
    s.open -= 1
    if s.open == 0:
        surveyor_sort(s)      # no call will receive them


cdef void survey_end(Surveyor* s, Survey* survey) noexcept nogil:
    """The deadline has passed: answers that have arrived by now are in time."""
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
    if survey.state == OPEN and host_now(s.head.host) >= survey.end:
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
        return MQ_STATE       # the context has been closed
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
        survey.end = host_now(s.head.host) + limit
        host_alarm(s.head.host, survey.end)
    return MQ_OK


cdef void surveyor_abandon(Pattern* self) noexcept nogil:
    cdef Survey* survey = surveyor_of(<Surveyor*> self, self.context)
    if survey != NULL:
        survey_forget(<Surveyor*> self, survey)


cdef void surveyor_alarm(Pattern* self, int64_t now) noexcept nogil:
    """Close the surveys that are over; the next one in line sets the next alarm."""
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
    # not a public option: only for the next survey of this context
    if strcmp(name, "this_deadline") == 0:
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
        return 0              # not readable without a survey
    if survey.state == OPEN and host_now(s.head.host) >= survey.end:
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
        ("deadline", "seconds", 1.0, "time for the answers to a survey"),
        ("nodrop", "bool", False, "wait for peers whose queues are full instead of dropping"),
        ("raw", "bool", False, "the application handles the envelope, as devices do"),
    ),
    "asks all peers at once, collects their answers until a deadline",
)
