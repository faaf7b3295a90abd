"""A mailbox: many writers, one reader. A lock-free stack of notes and an eventfd that is written
only when the reader may sleep."""

from libc.stdint cimport uint32_t
from libcpp.atomic cimport atomic

from mqcore.reactor.wakeup cimport eventfd_clear, eventfd_new, eventfd_signal

cdef struct Note:             # head of every note; malloc'ed by the writer, freed by the reader
    Note* next
    uint32_t kind

cdef struct Mailbox:
    atomic[Note*] head
    int fd                    # readable while there may be notes


cdef inline int mailbox_init(Mailbox* box) noexcept nogil:
    """0, or -1 with errno."""
    box.head.store(NULL)
    box.fd = eventfd_new()
    return 0 if box.fd >= 0 else -1


cdef inline void mailbox_put(Mailbox* box, Note* note) noexcept nogil:
    """Any thread. The mailbox owns note now."""
    cdef Note* head = box.head.load()
    while True:
        note.next = head
        if box.head.compare_exchange_weak(head, note):
            break
    # the reader takes all at once, so only the first of a run must wake it
    if head == NULL:
        eventfd_signal(box.fd)


cdef inline Note* mailbox_take(Mailbox* box) noexcept nogil:
    """The reader: all notes, oldest first; it owns them."""
    cdef Note* stack
    cdef Note* out = NULL
    cdef Note* following
    eventfd_clear(box.fd)
    stack = box.head.exchange(NULL)
    while stack != NULL:
        following = stack.next
        stack.next = out
        out = stack
        stack = following
    return out
