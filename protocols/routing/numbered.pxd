"""What patterns share that receive from all peers in turn and write to one by its number: SERVER,
and the replying side (answer.pxd).
"""

from mqcore.protocols.routing.fair_queue cimport FairQueue
from mqcore.protocols.routing.peers cimport Peers
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe

cdef struct Numbered:         # a Pattern: the head of the state; zero-initialise
    Pattern head
    FairQueue inn
    Peers peers               # who can be written to, by Pipe.id

# Operations for the table.
cdef void numbered_fini(Pattern* self) noexcept nogil
cdef int numbered_attach(Pattern* self, Pipe* pipe) noexcept nogil
cdef void numbered_hangup(Pattern* self, Pipe* pipe) noexcept nogil
cdef void numbered_detach(Pattern* self, Pipe* pipe) noexcept nogil
cdef void numbered_readable(Pattern* self, Pipe* pipe) noexcept nogil
