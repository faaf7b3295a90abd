"""RESPONDENT: takes a survey, answers whoever asked. Peers: SURVEYOR. REP with another name on the
wire (`routing/answer`), and a raw mode, for devices.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strcmp

from mqcore.base.status cimport MQ_OK, MQ_UNSUPPORTED
from mqcore.protocols.routing.answer cimport (
    Answerer, answer_attach, answer_detach, answer_fini, answer_hangup, answer_init, answer_query,
    answer_readable, answer_recv, answer_send, answer_send_to, answer_set_raw,
)
from mqcore.protocols.routing.stub cimport no_event
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_RECV, PAT_SEND, PAT_WORDS, PATTERN_ABI, Pattern,
    PatternOps, plugin_new,
)


cdef int respondent_set_option(Pattern* self, const char* name, int64_t number,
                               const uint8_t* data, size_t size) noexcept nogil:
    if strcmp(name, "raw") != 0:
        return MQ_UNSUPPORTED
    answer_set_raw(<Answerer*> self, number != 0)
    return MQ_OK


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_EXCHANGE | PAT_WORDS,
    size=sizeof(Answerer),
    init=answer_init,
    fini=answer_fini,
    set_option=respondent_set_option,
    attach=answer_attach,
    detach=answer_detach,
    hangup=answer_hangup,
    readable=answer_readable,
    writable=no_event,
    send=answer_send,
    recv=answer_recv,
    send_to=answer_send_to,
    subscribe=NULL,
    abandon=NULL,
    query=answer_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "respondent", -1, "", 0x63, ("surveyor",),
    (("raw", "bool", False, "the envelope is the application's: a device's end"),),
    "takes a survey, answers whoever asked",
)
