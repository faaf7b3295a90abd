"""Words: what stands in front of the body of SP's requests, surveys and their answers, as parts.

    wire     word word .. id body        a word has four bytes, big-endian; the id's top bit is set
    parts    part, part .., id, "", body

A word with a clear top bit is a hop: whoever passed the message on put there the number of the
connection that it came by. As a part it is 00 and the word, which is the form of the routing ids
that a ROUTER makes up. The id as a part is its four bytes. An empty part ends the envelope.

An envelope that has not this form (a ZMTP client's routing id, no id at all) cannot be said. Who
asks remembers it under an id of his own, and puts it back when the answer comes: at most
REMEMBERED of them, then the oldest are forgotten. Whoever answers cannot do that.

Independent of framing: the codecs of SP over streams and over WebSocket use it. One `Words` for
each codec, used by whoever holds the engine's lease.
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
    uint32_t id               # what stands for it on the wire
    uint32_t parts
    uint32_t size

cdef struct Words:            # zero-initialise
    Bytes env                 # of the message that comes in: its words as they are on the wire
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
# In. Take the words of a message from n bytes of it. MQ_OK: its id is there, the body follows;
# MQ_NEED_DATA: all n used; MQ_PROTOCOL: too many, the reason is set; MQ_NOMEM, nothing used.
cdef int words_take(Words* w, Codec* c, const uint8_t* at, size_t n, size_t* used) noexcept nogil
# The envelope is whole. MQ_OK: words_next gives its parts; MQ_DROPPED: an answer that nobody waits
# for any more, counted in c.late: the rest of it is to be thrown away, words_next gives nothing;
# MQ_NOMEM: try again.
cdef int words_open(Words* w, Codec* c) noexcept nogil
# The next part, the last one empty, all flagged MSG_MORE. MQ_OK; MQ_DONE: that was all, ready for
# the next message; MQ_NOMEM: try again.
cdef int words_next(Words* w, Codec* c, Msg* out) noexcept nogil
# Out. The words that stand for the envelope of the message at the front of q, appended to out, and
# how many parts it is, the empty one included. MQ_OK; MQ_DROPPED: it cannot be said; MQ_NOMEM.
cdef int words_say(Words* w, Codec* c, YQueue* q, Bytes* out, size_t* parts) noexcept nogil
cdef void words_fini(Words* w) noexcept nogil
