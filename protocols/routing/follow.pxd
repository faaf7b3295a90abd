"""What patterns share that receive from all publishers in turn and tell them what they want: SUB,
XSUB, DISH.
"""

from mqcore.protocols.routing.fair_queue cimport FairQueue
from mqcore.protocols.routing.interest cimport Interest
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe

cdef struct Follower:         # a Pattern: the head of the state; zero-initialise
    Pattern head
    FairQueue inn
    Interest it               # the subscriptions sent to publishers

# Operations for the table.
cdef int follow_init(Pattern* self) noexcept nogil
cdef void follow_fini(Pattern* self) noexcept nogil
cdef int follow_attach(Pattern* self, Pipe* pipe) noexcept nogil
cdef void follow_hangup(Pattern* self, Pipe* pipe) noexcept nogil
cdef void follow_detach(Pattern* self, Pipe* pipe) noexcept nogil
cdef void follow_readable(Pattern* self, Pipe* pipe) noexcept nogil
