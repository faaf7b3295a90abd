"""Requests of one socket, each of a context: who has it, when it is sent again, its answer.

An Ask is in at most one AskList (it waits for its time, or for a peer) and, while a peer has it or
has answered it, in that pipe's list, which starts at Pipe.data. Pipe.owed counts those that the
pipe has not answered."""

from libc.stdint cimport int64_t, uint32_t

from mqcore.base.message cimport MsgVec
from mqcore.spi.pipe cimport Pipe

cdef struct Ask:              # zero-initialise
    uint32_t context
    uint32_t id               # of the request, if it is numbered
    uint32_t state            # the pattern's
    bint numbered
    bint again                # sent more than once: any peer that got it may answer
    Pipe* pipe                # of the peer that has or answered it; NULL: none, or left
    bint owed                 # counted in pipe.owed
    Ask* pipe_next
    Ask* pipe_prev
    MsgVec answer
    MsgVec kept               # the request, as long as it may have to be sent again
    int64_t due               # ns: when that is
    int64_t asked             # ns: when the application sent it; 0: not measured
    AskList* list             # where it waits
    Ask* next
    Ask* prev

cdef struct AskList:          # zero-initialise
    Ask* first
    Ask* last


cdef inline void ask_unlist(Ask* ask) noexcept nogil:
    """It waits for nothing any more. Idempotent."""
    cdef AskList* at = ask.list
    if at == NULL:
        return
    if ask.prev != NULL:
        ask.prev.next = ask.next
    else:
        at.first = ask.next
    if ask.next != NULL:
        ask.next.prev = ask.prev
    else:
        at.last = ask.prev
    ask.list = NULL


cdef inline void ask_list(AskList* at, Ask* ask) noexcept nogil:
    """In by its `due`, behind those of the same; it is in no list."""
    cdef Ask* before = at.last
    while before != NULL and before.due > ask.due:
        before = before.prev
    ask.list = at
    ask.prev = before
    ask.next = before.next if before != NULL else at.first
    if ask.next != NULL:
        ask.next.prev = ask
    else:
        at.last = ask
    if before != NULL:
        before.next = ask
    else:
        at.first = ask


cdef inline void ask_leave(Ask* ask) noexcept nogil:
    """The pipe has nothing to do with it any more. Idempotent."""
    if ask.pipe == NULL:
        return
    if ask.owed:
        ask.pipe.owed -= 1
        ask.owed = False
    if ask.pipe_prev != NULL:
        ask.pipe_prev.pipe_next = ask.pipe_next
    else:
        ask.pipe.data = ask.pipe_next
    if ask.pipe_next != NULL:
        ask.pipe_next.pipe_prev = ask.pipe_prev
    ask.pipe = NULL


cdef inline void ask_join(Ask* ask, Pipe* pipe, bint owed) noexcept nogil:
    """The pipe has it, or has answered it."""
    ask_leave(ask)
    ask.pipe = pipe
    ask.owed = owed
    pipe.owed += owed
    ask.pipe_prev = NULL
    ask.pipe_next = <Ask*> pipe.data
    if ask.pipe_next != NULL:
        ask.pipe_next.pipe_prev = ask
    pipe.data = ask
