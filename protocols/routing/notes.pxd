"""Notes: what a pattern has to tell the application by itself, each one handle, in order."""

from libc.stdint cimport int64_t
from libc.string cimport memmove

from mqcore.base.message cimport Msg, MsgVec, msg_close, msg_size, vec_fini, vec_push
from mqcore.base.status cimport MQ_NOMEM, MQ_OK

cdef struct Notes:            # zero-initialise
    MsgVec line               # not yet received: from `at` on
    size_t at
    int64_t bytes_            # of those that wait, handles included: the pattern bounds it


cdef inline size_t notes_waiting(const Notes* notes) noexcept nogil:
    return notes.line.n - notes.at


cdef inline int notes_put(Notes* notes, Msg* m) noexcept nogil:
    """Moves m in. Status; for lack of memory the application misses it, nothing else is wrong."""
    cdef int64_t size = <int64_t> (msg_size(m) + sizeof(Msg))
    if notes.at * 2 > notes.line.n:       # close up: each handle moves once at most
        notes.line.n -= notes.at
        memmove(notes.line.at, notes.line.at + notes.at, notes.line.n * sizeof(Msg))
        notes.at = 0
    if vec_push(&notes.line, m):
        msg_close(m)
        return MQ_NOMEM
    notes.bytes_ += size
    return MQ_OK


cdef inline Msg* notes_front(Notes* notes) noexcept nogil:
    """The next one where it lies. Whoever has moved it away calls notes_pop."""
    return &notes.line.at[notes.at]


cdef inline void notes_pop(Notes* notes) noexcept nogil:
    notes.bytes_ -= <int64_t> (msg_size(notes_front(notes)) + sizeof(Msg))
    notes.at += 1


cdef inline void notes_fini(Notes* notes) noexcept nogil:
    notes.line.n -= notes.at
    if notes.at:
        memmove(notes.line.at, notes.line.at + notes.at, notes.line.n * sizeof(Msg))
    vec_fini(&notes.line)
