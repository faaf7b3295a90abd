"""A subscriber's publishers: see follow.pxd."""

from mqcore.base.status cimport MQ_OK
from mqcore.protocols.routing.fair_queue cimport fq_attach, fq_detach, fq_fini, fq_readable
from mqcore.protocols.routing.interest cimport interest_attach, interest_fini, interest_hangup


cdef int follow_init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void follow_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Follower*> self).inn)
    interest_fini(&(<Follower*> self).it)


cdef int follow_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Follower* f = <Follower*> self
    cdef int rc = fq_attach(&f.inn, pipe)
    if rc:
        return rc
    rc = interest_attach(&f.it, pipe)
    if rc:
        fq_detach(&f.inn, pipe)
    return rc


cdef void follow_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<Follower*> self).it, pipe)


cdef void follow_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<Follower*> self).it, pipe)
    fq_detach(&(<Follower*> self).inn, pipe)


cdef void follow_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Follower*> self).inn, pipe)
