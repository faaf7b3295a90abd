"""The answering side: REP and RESPONDENT. Takes a request, answers whoever asked.

A request is an envelope (route words up to and including the first empty part) and a body. `recv`
gives both, the envelope flagged MSG_ENVELOPE, and remembers envelope and peer for a plain `send`;
the next `recv` replaces what is remembered. `send_to` answers any request: its parts start with the
envelope that `recv` gave. An answer never waits: if the peer is gone or at its mark it is dropped,
counted. A request with more words than `max_hops` has gone astray: dropped, counted.

Raw, there is no order: `recv` puts a hop part with the asking peer's number in front (flagged
MSG_ROUTING_ID), nothing else is hidden, and `send` takes it off to know whom the answer is for.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.protocols.routing.fair_queue cimport FairQueue
from mqcore.protocols.routing.peers cimport Peers
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe

cdef struct Answerer:         # a Pattern: the head of REP's and RESPONDENT's state
    Pattern head
    FairQueue inn
    Peers numbers             # who can be answered, by Pipe.id
    uint32_t asker            # Pipe.id of the last request, 0: nothing to answer
    MsgVec envelope           # of the last request
    MsgVec wire               # scratch: envelope and answer
    bint raw

# -- operations for the table; nothing to set up but zeroes --------------------------------------
cdef int answer_init(Pattern* self) noexcept nogil
cdef void answer_fini(Pattern* self) noexcept nogil
cdef int answer_attach(Pattern* self, Pipe* pipe) noexcept nogil
cdef void answer_hangup(Pattern* self, Pipe* pipe) noexcept nogil
cdef void answer_detach(Pattern* self, Pipe* pipe) noexcept nogil
cdef void answer_readable(Pattern* self, Pipe* pipe) noexcept nogil
cdef int answer_recv(Pattern* self, MsgVec* out) noexcept nogil
cdef int answer_send(Pattern* self, Msg* parts, size_t n) noexcept nogil
cdef int answer_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil
cdef int64_t answer_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil
# -- raw, for a table that has the option; it may change at any time ------------------------------
cdef void answer_set_raw(Answerer* a, bint on) noexcept nogil
