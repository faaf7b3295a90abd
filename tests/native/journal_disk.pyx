"""A disk for tests of the journal: it notes what is written and synced, and fails when told to.

Also drives the writer's sink with message handles, as a device does, for tests and benchmarks.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc cimport errno as system
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset
from libcpp.vector cimport vector
from posix.stat cimport fstat, struct_stat

from mqcore.base.includes cimport iovec
from mqcore.base.message cimport (
    MSG_MORE, MsgVec, msg_init_copy, vec_clear, vec_fini, vec_grow,
)
from mqcore.base.slab cimport Pool, pool_free, pool_new
from mqcore.journal.store.core cimport WriterCore
from mqcore.journal.store.includes cimport fdatasync, pwritev
from mqcore.spi.sink cimport Sink

import os

cdef struct Happened:
    int kind                  # 'w', 's'
    uint64_t file             # its inode
    int64_t at                # where a write ends


cdef struct Notes:
    int64_t room              # bytes that may still be written; -1: any
    int64_t syncs_left        # good syncs before one fails; -1: all are good
    int64_t bad_syncs         # so many syncs fail, then they are good again: told once
    bint short_writes         # at most one byte less than asked for
    void* before              # a callable, or NULL
    void* synced              # likewise


cdef vector[Happened]* events_of(void* self) noexcept nogil:
    return <vector[Happened]*> (<void**> self)[0]


cdef Notes* notes_of(void* self) noexcept nogil:
    return <Notes*> (<void**> self)[1]


cdef void note(void* self, int kind, int fd, int64_t at) noexcept nogil:
    cdef Happened h
    cdef struct_stat facts
    fstat(fd, &facts)
    h.kind = kind
    h.file = facts.st_ino
    h.at = at
    events_of(self).push_back(h)


cdef void tell(void* self) noexcept nogil:
    """Something is about to happen, and has not yet."""
    if notes_of(self).before != NULL:
        with gil:
            if notes_of(self).before != NULL:       # nobody has cleared it meanwhile
                (<object> notes_of(self).before)()


cdef ssize_t disk_pwritev(void* self, int fd, const iovec* iov, int n, int64_t at) noexcept nogil:
    cdef Notes* notes = notes_of(self)
    cdef iovec one
    cdef ssize_t done
    tell(self)
    if notes.room == 0:
        system.errno = system.ENOSPC
        return -1
    if notes.room > 0 or notes.short_writes:
        one = iov[0]
        if notes.room > 0 and <int64_t> one.iov_len > notes.room:
            one.iov_len = notes.room
        elif notes.short_writes and one.iov_len > 1:
            one.iov_len -= 1
        done = pwritev(fd, &one, 1, at)
        if notes.room > 0 and done > 0:
            notes.room -= done
    else:
        done = pwritev(fd, iov, n, at)
    if done > 0:
        note(self, c'w', fd, at + done)
    return done


cdef int disk_fdatasync(void* self, int fd) noexcept nogil:
    cdef Notes* notes = notes_of(self)
    cdef int rc
    tell(self)
    if notes.bad_syncs > 0:
        notes.bad_syncs -= 1
        system.errno = system.EIO
        return -1
    if notes.syncs_left == 0:
        system.errno = system.EIO
        return -1
    if notes.syncs_left > 0:
        notes.syncs_left -= 1
    rc = fdatasync(fd)
    if rc == 0:
        note(self, c's', fd, 0)
        if notes.synced != NULL:
            with gil:
                if notes.synced != NULL:
                    (<object> notes.synced)(events_of(self).back().file)
    return rc


cdef class Disk:
    """Stands between a writer and the system from attach() on. Keep it as long as the writer."""
    cdef vector[Happened] events
    cdef Notes notes
    cdef void* both[2]
    cdef object callback
    cdef object synced_callback

    def __cinit__(self):
        self.notes.room = self.notes.syncs_left = -1
        self.both[0] = &self.events
        self.both[1] = &self.notes

    def attach(self, WriterCore writer):
        writer.log.ops.self = &self.both[0]
        writer.log.ops.pwritev = disk_pwritev
        writer.log.ops.fdatasync = disk_fdatasync

    def fail(self, *, room=None, syncs_left=None, bad_syncs=None, partial=None):
        """room: bytes until ENOSPC; syncs_left: until EIO; -1 cures both. bad_syncs: so many fail
        with EIO, and what comes after them does not, as a system reports an error once."""
        if room is not None:
            self.notes.room = room
        if syncs_left is not None:
            self.notes.syncs_left = syncs_left
        if bad_syncs is not None:
            self.notes.bad_syncs = bad_syncs
        if partial is not None:
            self.notes.short_writes = partial

    def happened(self) -> list:
        """(what, end): "write", "sync", in order."""
        names = {c'w': "write", c's': "sync"}
        return [(names[h.kind], h.at) for h in self.events]

    def before(self, callback):
        """Call this before each write and sync; None: no more."""
        self.callback = callback
        self.notes.before = NULL if callback is None else <void*> callback

    def after_sync(self, callback):
        """Call this with the inode of the file after each good sync; None: no more."""
        self.synced_callback = callback
        self.notes.synced = NULL if callback is None else <void*> callback

    def synced(self, path) -> int:
        """Up to which byte this file was written at its last sync. What was there before attach()
        does not count."""
        cdef uint64_t file = os.stat(path).st_ino
        cdef int64_t end = 0, synced = 0
        for h in self.events:
            if h.file != file:
                continue
            if h.kind == c'w':
                end = max(end, h.at)
            else:
                synced = end
        return synced


cdef class Handles:
    """Messages as handles, to be given to a writer's sink again and again."""
    cdef Pool* pool
    cdef MsgVec v

    def __cinit__(self):
        self.pool = pool_new()
        memset(&self.v, 0, sizeof(self.v))

    def __dealloc__(self):
        vec_fini(&self.v)
        pool_free(self.pool)

    def put(self, *messages):
        """Each a bytes, or a sequence of bytes: its parts."""
        cdef bytes part
        for message in messages:
            parts = (message,) if isinstance(message, bytes) else tuple(message)
            for i, part in enumerate(parts):
                if self.v.n == self.v.cap and vec_grow(&self.v, self.v.n + 1):
                    raise MemoryError
                msg_init_copy(&self.v.at[self.v.n], self.pool, <const uint8_t*> <char*> part,
                              len(part))
                if i + 1 < len(parts):
                    self.v.at[self.v.n].flags |= MSG_MORE
                self.v.n += 1

    def give(self, writer) -> tuple:
        """(status, parts taken); those are gone from here."""
        capsule = writer._mq_sink()
        cdef Sink sink = (<Sink*> PyCapsule_GetPointer(capsule, "mqcore.sink"))[0]
        cdef size_t done = 0, i
        cdef int rc
        with nogil:
            rc = sink.ops.take(sink.self, &self.v, 0, &done)
        for i in range(done, self.v.n):
            self.v.at[i - done] = self.v.at[i]
        self.v.n -= done
        return rc, done

    def give_many(self, WriterCore writer, bytes message, int64_t batches, int64_t n) -> int:
        """batches times n handles of the same message; those taken."""
        cdef Sink sink = writer.sink()
        cdef size_t done, size = len(message)
        cdef const uint8_t* data = <const uint8_t*> <char*> message
        cdef int64_t i, k, taken = 0
        cdef int rc
        with nogil:
            vec_clear(&self.v)
            vec_grow(&self.v, n)
            for i in range(batches):
                for k in range(n):
                    msg_init_copy(&self.v.at[k], self.pool, data, size)
                self.v.n = n
                done = 0
                rc = sink.ops.take(sink.self, &self.v, 0, &done)
                taken += done
                self.v.n = 0
                if rc:
                    break
        return taken

    def sink_state(self, WriterCore writer) -> tuple:
        """(ready, durable) as a device sees them."""
        cdef Sink sink = writer.sink()
        return bool(sink.ops.ready(sink.self)), sink.ops.durable(sink.self)
