"""The replying side: REP and RESPONDENT. Receives requests and replies to them.

A request is an envelope (route words up to and including the first empty part) and a body. `recv`
returns both, the envelope flagged MSG_ENVELOPE. It remembers envelope and peer for a plain `send`,
until the next `recv`. `send_to` replies to any request: its parts start with the envelope that
`recv` returned. A reply never waits: if the peer is gone or at its HWM, it is dropped
and counted. A request with more words than `max_hops` is in a loop: it is dropped and counted.

Raw mode enforces no order: `recv` prepends a hop part with the requester's number (flagged
MSG_ROUTING_ID) and hides nothing else. `send` removes it and sends the reply to that peer.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.protocols.routing.numbered cimport Numbered
from mqcore.spi.pattern cimport Pattern

cdef struct Answerer:         # a Pattern: the head of REP's and RESPONDENT's state
    Numbered base             # its peers are those that can get a reply
    uint32_t asker            # Pipe.id of the last request, 0: no pending request
    MsgVec envelope           # of the last request
    MsgVec wire               # scratch: envelope and reply
    bint raw

# -- operations for the table, beside those of numbered.pxd; zero-initialised state is enough ------
cdef int answer_init(Pattern* self) noexcept nogil
cdef void answer_fini(Pattern* self) noexcept nogil
cdef int answer_recv(Pattern* self, MsgVec* out) noexcept nogil
cdef int answer_send(Pattern* self, Msg* parts, size_t n) noexcept nogil
cdef int answer_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil
cdef int64_t answer_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil
# -- raw, for a table that has the option; it may change at any time ------------------------------
cdef void answer_set_raw(Answerer* a, bint on) noexcept nogil
