"""REP: receives requests and replies to them. Peers: REQ, DEALER. Its code is shared with
RESPONDENT: `routing/answer`. Its raw form is ROUTER."""

from mqcore.protocols.routing.answer cimport (
    Answerer, answer_fini, answer_init, answer_query, answer_recv, answer_send, answer_send_to,
)
from mqcore.protocols.routing.numbered cimport (
    numbered_attach, numbered_detach, numbered_hangup, numbered_readable,
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

pattern = plugin_new(&OPS, "rep", 4, "REP", 0x31, ("req", "dealer"), (),
                     "receives requests, sends replies")
