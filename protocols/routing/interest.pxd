"""What SUB and XSUB share: the topics they want, counted, and the publishers that are told.

Topics are told once each to a new publisher and live when they change: every subscribe is told, a
cancel only when the last reference goes.
"""

from libc.stdint cimport uint8_t

from mqcore.protocols.routing.distribute cimport Targets
from mqcore.protocols.routing.topics cimport Topics
from mqcore.spi.pipe cimport Pipe

cdef struct Interest:         # zero-initialise
    Topics topics             # the value counts references
    Targets peers             # publishers that are there
    uint8_t* path             # as long as the longest topic
    size_t path_cap

# Status. attach tells the new publisher all topics; hangup may be called twice.
cdef int interest_attach(Interest* it, Pipe* pipe) noexcept nogil
cdef void interest_hangup(Interest* it, Pipe* pipe) noexcept nogil
# MQ_OK; MQ_INVALID: a topic to give up that is not held; MQ_NOMEM. *tell: publishers must hear.
cdef int interest_change(Interest* it, const uint8_t* topic, size_t size, bint on,
                         bint* tell) noexcept nogil
# The same, and tells them by a control handle.
cdef int interest_set(Interest* it, const uint8_t* topic, size_t size, bint on) noexcept nogil
cdef void interest_fini(Interest* it) noexcept nogil
