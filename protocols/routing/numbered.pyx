"""Peers by number: see numbered.pxd."""

from mqcore.protocols.routing.fair_queue cimport fq_attach, fq_detach, fq_fini, fq_readable
from mqcore.protocols.routing.peers cimport hash_number, peers_add, peers_fini, peers_remove


cdef void numbered_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Numbered*> self).inn)
    peers_fini(&(<Numbered*> self).peers)


cdef int numbered_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Numbered* s = <Numbered*> self
    cdef int rc = fq_attach(&s.inn, pipe)
    if rc:
        return rc
    rc = peers_add(&s.peers, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(&s.inn, pipe)
    return rc


cdef void numbered_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    peers_remove(&(<Numbered*> self).peers, hash_number(pipe.id), pipe)


cdef void numbered_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    numbered_hangup(self, pipe)
    fq_detach(&(<Numbered*> self).inn, pipe)


cdef void numbered_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Numbered*> self).inn, pipe)
