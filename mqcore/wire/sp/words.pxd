"""Words: the numbers before the body of SP's requests, surveys and their answers, as parts.

    SP       word word .. id body        a word has four bytes, big-endian; the id's top bit is set
    parts    part, part .., id, "", body

A word with a clear top bit is a hop: each forwarder adds the number of the connection that the
message arrived on. As a part it is 00 and the word, which is the form of a ROUTER's generated
routing ids. The id as a part is its four bytes. An empty part ends the envelope.

An envelope of another form (a ZMTP client's routing id, no id at all) cannot be represented. A
requester stores it under an id of its own, and restores it when the reply arrives. It stores at
most REMEMBERED of them, then forgets the oldest. A replier cannot do that.

Independent of framing: the codecs of SP over streams and over WebSocket use it. Each codec has one
`Words`, used by the holder of the engine's lease.
"""

from libc.stdint cimport uint8_t, uint32_t

from mqcore.base.bytes cimport Bytes
from mqcore.base.message cimport Msg
from mqcore.base.yqueue cimport YQueue
from mqcore.wire.codec cimport Codec

cdef enum:
    WORDS_MAX = 255           # of one message; more than any device passes on
    REMEMBERED = 65536        # a power of two
    ENVELOPE_MAX = 4096       # bytes of one that is remembered

cdef struct Remembered:       # an envelope; its parts follow: size (4 bytes, ours) and bytes, each
    uint32_t id               # the id that replaces it in SP
    uint32_t parts
    uint32_t size

cdef struct Words:            # zero-initialise
    Bytes env                 # of the incoming message: its words as received
    size_t at                 # of env, or of what `back` has: up to here it has been handed out
    bint ended                # the empty part has been handed out too
    Remembered* back          # what stands in place of env's only word
    # -- who asks: envelopes that wait for their answers
    Remembered** table        # by the low bits of their ids
    uint32_t cap
    uint32_t first            # the first id of ours that was given out
    uint32_t given            # how many were

# Does this socket ask (REQ, SURVEYOR, cooked or raw)?
cdef bint words_asks(const Codec* c) noexcept nogil
# Receiving. Take the words of a message from n bytes. MQ_OK: its id is complete, the body follows;
# MQ_NEED_DATA: all n used. MQ_PROTOCOL: too many, the reason is set. MQ_NOMEM: nothing used.
cdef int words_take(Words* w, Codec* c, const uint8_t* at, size_t n, size_t* used) noexcept nogil
# The envelope is complete. MQ_OK: words_next returns its parts; MQ_DROPPED: a reply to a forgotten
# request, counted in c.late: discard the rest, words_next returns nothing; MQ_NOMEM: try again.
cdef int words_open(Words* w, Codec* c) noexcept nogil
# The next part, the last one empty, all flagged MSG_MORE. MQ_OK; MQ_DONE: that was all, ready for
# the next message; MQ_NOMEM: try again.
cdef int words_next(Words* w, Codec* c, Msg* out) noexcept nogil
# Sending. Append the words for the envelope of the message at the front of q to out, and set *parts
# to its number of parts, including the empty one. MQ_OK, MQ_NOMEM, MQ_DROPPED (no SP form).
cdef int words_say(Words* w, Codec* c, YQueue* q, Bytes* out, size_t* parts) noexcept nogil
cdef void words_fini(Words* w) noexcept nogil
