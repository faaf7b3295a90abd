"""What SUB and XSUB share: their topics, counted, and the publishers that get them.

A new publisher gets each topic once. Changes are sent live: every subscribe, but a cancel only when
the last reference is gone.
"""

from libc.stdint cimport uint8_t

from mqcore.protocols.routing.distribute cimport Targets
from mqcore.protocols.routing.topics cimport Topics
from mqcore.spi.pipe cimport Pipe

cdef enum:
    NOTE_SHIFT = 32           # the upper half counts references of notes, the lower half others

cdef struct Interest:         # zero-initialise
    Topics topics             # the value counts references: see NOTE_SHIFT
    Targets peers             # connected publishers
    uint8_t* path             # as long as the longest topic
    size_t path_cap

# Status. attach sends the new publisher all topics; hangup may be called twice.
cdef int interest_attach(Interest* it, Pipe* pipe) noexcept nogil
cdef void interest_hangup(Interest* it, Pipe* pipe) noexcept nogil
# MQ_OK, MQ_NOMEM, or MQ_INVALID: the topic to cancel is not subscribed. *tell: publishers must get
# it.
cdef int interest_change(Interest* it, const uint8_t* topic, size_t size, bint on,
                         bint* tell) noexcept nogil
# The same for a note of an XPUB (MSG_NOTE): `last`: no subscriber behind it is left, however
# often the topic was subscribed to.
cdef int interest_note(Interest* it, const uint8_t* topic, size_t size, bint on, bint last,
                       bint* tell) noexcept nogil
# The same, and sends it to them as a control handle.
cdef int interest_set(Interest* it, const uint8_t* topic, size_t size, bint on) noexcept nogil
cdef void interest_fini(Interest* it) noexcept nogil
