"""The data plane of one context: see plane.pxd."""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.base.lock cimport lock_release, lock_take
from mqcore.base.slab cimport pool_free, pool_new
from mqcore.reactor.includes cimport close
from mqcore.reactor.io_thread cimport (
    TICK_LED, io_abandon, io_free, io_new, io_shut, io_start, io_step, io_stop,
)
from mqcore.reactor.mailbox cimport mailbox_init, mailbox_put, mailbox_take


cdef Plane* plane_new(const PollerOps* poller, int io_threads,
                      int64_t lead_tick, int64_t virtual) noexcept nogil:
    cdef Plane* plane = <Plane*> calloc(1, sizeof(Plane))
    cdef int i
    if plane == NULL:
        return NULL
    plane.poller = poller
    plane.stepped = virtual != 0
    plane.notes.fd = -1
    plane.pool = pool_new()
    plane.ios = <IoThread**> calloc(io_threads, sizeof(IoThread*))
    if plane.pool == NULL or plane.ios == NULL or mailbox_init(&plane.notes) < 0:
        plane_free(plane)
        return NULL
    for i in range(io_threads):
        plane.ios[i] = io_new(poller)
        if plane.ios[i] != NULL:
            plane.ios[i].ticks[TICK_LED].period = lead_tick
            plane.ios[i].virtual = virtual
        if plane.ios[i] == NULL or (not plane.stepped and io_start(plane.ios[i])):
            if plane.ios[i] != NULL:
                io_free(plane.ios[i])
            plane_stop(plane)
            plane_free(plane)
            return NULL
        plane.n_ios += 1
    return plane


cdef void plane_stop(Plane* plane) noexcept nogil:
    cdef int i
    for i in range(plane.n_ios):
        io_stop(plane.ios[i])
    if plane.filters != NULL:
        io_stop(plane.filters)


cdef IoThread* plane_filters(Plane* plane, IoThread* io) noexcept nogil:
    cdef IoThread* made
    if plane.stepped:
        return io             # one loop, so that one thread runs everything in one order
    lock_take(&plane.filters_lock)
    if plane.filters == NULL:
        made = io_new(plane.poller)
        if made != NULL:
            made.name = b"mqcore-filter"
            made.calls_python = True
        if made != NULL and io_start(made):
            io_free(made)
            made = NULL
        plane.filters = made
    lock_release(&plane.filters_lock)
    return plane.filters if plane.filters != NULL else io


cdef int plane_step(Plane* plane) noexcept nogil:
    cdef int i
    cdef int done = 0
    for i in range(plane.n_ios):
        done += io_step(plane.ios[i])
    return done


cdef void plane_shut(Plane* plane) noexcept nogil:
    cdef Note* note
    cdef Note* following
    cdef int i
    for i in range(plane.n_ios):
        io_shut(plane.ios[i])
    if plane.filters != NULL:
        io_shut(plane.filters)
    if plane.notes.fd >= 0:
        note = mailbox_take(&plane.notes)
        while note != NULL:
            following = note.next
            if not (<ControlNote*> note).fixed:
                free(note)
            note = following
        close(plane.notes.fd)
        plane.notes.fd = -1


cdef void plane_free(Plane* plane) noexcept nogil:
    cdef uint32_t b
    cdef int i
    plane_shut(plane)
    for i in range(plane.n_ios):
        io_free(plane.ios[i])
    if plane.filters != NULL:
        io_free(plane.filters)
    for b in range(plane.n_blocks):
        free(plane.blocks[b])
    free(plane.blocks)
    free(plane.ios)
    if plane.pool != NULL:
        pool_free(plane.pool)
    free(plane)


cdef void plane_abandon(Plane* plane) noexcept nogil:
    cdef int i
    for i in range(plane.n_ios):
        io_abandon(plane.ios[i])
    if plane.filters != NULL:
        io_abandon(plane.filters)
    close(plane.notes.fd)


cdef ControlNote* note_new() noexcept nogil:
    return <ControlNote*> calloc(1, sizeof(ControlNote))


cdef void plane_tell(Plane* plane, ControlNote* note, uint32_t kind, uint32_t sock, uint32_t engine,
                     uint32_t peer, int32_t code) noexcept nogil:
    note.head.kind = kind
    note.sock = sock
    note.engine = engine
    note.peer = peer
    note.code = code
    if kind == NOTE_PATTERN:
        plane.pattern_notes.fetch_add(1)
    mailbox_put(&plane.notes, &note.head)


cdef void plane_note(Plane* plane, uint32_t kind, uint32_t sock, uint32_t engine, uint32_t peer,
                     int32_t code, uint32_t fatal, const void* text, size_t size) noexcept nogil:
    cdef ControlNote* note
    if size > NOTE_TEXT:
        size = NOTE_TEXT
    note = <ControlNote*> malloc(sizeof(ControlNote) + size)
    if note == NULL:
        return
    memset(note, 0, sizeof(ControlNote))
    note.fatal = fatal
    note.size = <uint32_t> size
    note.text = <char*> note + sizeof(ControlNote)
    if size:
        memcpy(<char*> note + sizeof(ControlNote), text, size)
    plane_tell(plane, note, kind, sock, engine, peer, code)
