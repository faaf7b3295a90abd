"""What PUB and XPUB share: subscriptions, their receivers, and retained messages.

Subscriptions are kept twice: as a set per connection, and in one index of all of them, which finds
the subscribers of every prefix of a message. So removing a peer costs as much as it had subscribed
to. The index's value is a pipe, or, if there are several, a list of pipes ordered by number.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.protocols.routing.distribute cimport Targets
from mqcore.protocols.routing.topics cimport Topics
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe

cdef enum:                    # the effect of a subscription or its end
    SUB_NOTHING = 0
    SUB_CHANGED = 1           # for this peer
    SUB_EDGE = 2              # it is the topic's first subscriber, or was its last
    SUB_COST = 64             # bytes that a subscription counts in addition to its topic

cdef struct Subscriber:       # Pipe.data
    Topics topics
    Topics asked              # of a manual XPUB: what its application knows that this peer wants
    uint64_t round            # the last message that it received: at most once each
    int64_t bytes_            # of both, SUB_COST more each
    bint cut                  # it exceeded its limit and is disconnected

cdef struct Publisher:        # a Pattern: the head of PUB's and XPUB's state
    Pattern head
    Topics index
    Topics retained           # by first part
    Targets hits
    uint64_t round
    uint8_t* path             # as long as the longest topic or retained first part
    size_t path_cap
    uint32_t retain
    bint nodrop
    bint cut                  # on_full="disconnect"
    int64_t most              # limit of Subscriber.bytes_; a peer that exceeds it is disconnected

cdef void pub_init(Publisher* pub) noexcept nogil
# Status. attach subscribes an unversioned peer to everything.
cdef int pub_attach(Publisher* pub, Pipe* pipe) noexcept nogil
cdef void pub_detach(Publisher* pub, Pipe* pipe) noexcept nogil
# bits of SUB_; a new subscription gets its retained messages. -1: no memory, or the peer exceeds
# its limit and is disconnected; nothing changed.
cdef int pub_subscribe(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size) noexcept nogil
cdef int pub_cancel(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size) noexcept nogil
# Removes one subscription of a peer, its topic in pub.path[0..*size): bits; SUB_NOTHING: none.
cdef int pub_strip(Publisher* pub, Pipe* pipe, size_t* size) noexcept nogil
# Puts all subscribers of exactly this topic into hits. Status.
# The peer asks a manual XPUB for a topic, or takes it back. False: it may have no more.
cdef bint pub_ask(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size,
                  bint on) noexcept nogil
# Take one of those out, into `path`. False: there is none.
cdef bint pub_unask(Publisher* pub, Pipe* pipe, size_t* size) noexcept nogil
cdef int pub_exactly(Publisher* pub, const uint8_t* topic, size_t size) noexcept nogil
# Sends each in hits a copy of the message; returns as PatternOps.send.
cdef int pub_give(Publisher* pub, Msg* parts, size_t n) noexcept nogil
cdef int pub_send(Pattern* self, Msg* parts, size_t n) noexcept nogil
cdef int64_t pub_subscribers(Publisher* pub, const uint8_t* topic, size_t size) noexcept nogil
cdef int pub_set_option(Publisher* pub, const char* name, int64_t number) noexcept nogil
cdef void pub_fini(Publisher* pub) noexcept nogil
