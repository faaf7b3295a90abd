"""RESPONDENT: receives surveys and answers them. Peers: SURVEYOR. REP under another name
(`routing/answer`), plus a raw mode for devices.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strcmp

from mqcore.base.status cimport MQ_OK, MQ_UNSUPPORTED
from mqcore.protocols.routing.answer cimport (
    Answerer, answer_fini, answer_init, answer_query, answer_recv, answer_send, answer_send_to,
    answer_set_raw,
)
from mqcore.protocols.routing.numbered cimport (
    numbered_attach, numbered_detach, numbered_hangup, numbered_readable,
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
    attach=numbered_attach,
    detach=numbered_detach,
    hangup=numbered_hangup,
    readable=numbered_readable,
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
    (("raw", "bool", False, "the application handles the envelope, as devices do"),),
    "receives surveys, sends answers",
)
