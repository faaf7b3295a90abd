"""Topics: byte strings to values, found by every prefix of a message. A radix tree.

A node is one block: a head, its kids, the first byte that leads to each kid, and its label, the
bytes that all below it share (without the byte that led to it). So a topic costs one block that is
little longer than the topic, and matching a message costs one step per branch on its way, however
many topics there are. Nothing here recurses: depth is in the hands of peers. The order of kids is
the order of arrival; walking the tree visits a topic before its extensions, and all topics with one
prefix together.

A value is any number but 0. One owner at a time, under the socket's lock.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef struct Node:
    uint64_t value            # 0: no topic ends here
    uint32_t size             # of the label
    uint16_t n                # kids
    uint16_t cap              # places for kids: 0, 2, 4 .. 256

cdef struct Topics:           # zero-initialise
    Node* root
    size_t n                  # topics
    size_t longest            # no topic was ever longer: what the buffers below must hold
    size_t memory             # bytes asked of malloc

cdef struct Walk:             # through the topics that are a prefix of a message
    Node* node
    const uint8_t* at
    size_t left

# The place of a topic's value; NULL: not there.
cdef uint64_t* topics_find(Topics* t, const uint8_t* topic, size_t size) noexcept nogil
# The same, made if need be; the caller sets a new one, 0, to something else at once. NULL: no
# memory.
cdef uint64_t* topics_put(Topics* t, const uint8_t* topic, size_t size) noexcept nogil
# Forgets a topic; False: it was not there.
cdef bint topics_remove(Topics* t, const uint8_t* topic, size_t size) noexcept nogil
# The value of the next topic that is a prefix, shortest first; 0: no more.
cdef void walk_start(Walk* w, const Topics* t, const uint8_t* data, size_t size) noexcept nogil
cdef uint64_t walk_next(Walk* w) noexcept nogil
# The first topic that starts with buf[0..*size), which becomes that topic; its value, 0: none.
cdef uint64_t topics_first(Topics* t, uint8_t* buf, size_t* size) noexcept nogil
# The topic after buf[0..*size), which is one.
cdef uint64_t topics_next(Topics* t, uint8_t* buf, size_t* size) noexcept nogil
# Takes any topic out of the tree; its value, 0: empty.
cdef uint64_t topics_pop(Topics* t, uint8_t* buf, size_t* size) noexcept nogil
cdef void topics_fini(Topics* t) noexcept nogil     # the values are the caller's
