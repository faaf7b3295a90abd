"""REP: takes a request, answers whoever asked. Peers: REQ, DEALER. All of it is the answering side
that RESPONDENT has too: `routing/answer`. Its raw form is ROUTER."""

from mqcore.protocols.routing.answer cimport (
    Answerer, answer_attach, answer_detach, answer_fini, answer_hangup, answer_init, answer_query,
    answer_readable, answer_recv, answer_send, answer_send_to,
)
from mqcore.protocols.routing.stub cimport no_event, no_option
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_RECV, PAT_SEND, PAT_WORDS, PATTERN_ABI, PatternOps, plugin_new,
)

cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_EXCHANGE | PAT_WORDS,
    size=sizeof(Answerer),
    init=answer_init,
    fini=answer_fini,
    set_option=no_option,
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

pattern = plugin_new(&OPS, "rep", 4, "REP", 0x31, ("req", "dealer"), (),
                     "takes a request, answers whoever asked")
