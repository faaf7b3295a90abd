"""PlaneCore: the data plane of a context as Python holds it."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from mqcore.base.slab cimport pool_drain_released
from mqcore.link.engine cimport Engine, engine_judge, engine_release
from mqcore.link.plane cimport (
    NOTE_PATTERN, ControlNote, plane_abandon, plane_free, plane_new, plane_shut, plane_stop,
)
from mqcore.link.slots cimport engine_at
from mqcore.reactor.epoll cimport epoll_ops
from mqcore.reactor.mailbox cimport Note, mailbox_take
from mqcore.reactor.poll cimport poll_ops
from mqcore.reactor.poller cimport PollerOps
from mqcore.wire.codec cimport Verdict
from mqcore.wire.security cimport CURVE, PLAIN

import os

from mqcore.base.native import threading


@cython.no_gc_clear
cdef class PlaneCore:
    """Pool, I/O threads and engine slots. Owned by a Context; ended by stop(), freed with the
    object."""

    def __cinit__(self, int io_threads=1, str poller="epoll", double lead_tick=0.01):
        cdef const PollerOps* ops
        if poller == "epoll":
            ops = epoll_ops()
        elif poller == "poll":
            ops = poll_ops()
        else:
            raise ValueError(f"no poller is called {poller!r}; there are epoll and poll")
        self.plane = plane_new(ops, io_threads, <int64_t> (lead_tick * 1e9))
        self.stopping = threading.Lock()
        if self.plane == NULL:
            raise OSError("cannot start the I/O threads: descriptors or memory are short")

    def __dealloc__(self):
        if self.plane != NULL and not self.forked:
            with nogil:           # it joins I/O threads, which may wait for the GIL
                plane_stop(self.plane)
            pool_drain_released(self.plane.pool)
            plane_free(self.plane)

    def stop(self):
        """Join the I/O threads. Every socket is closed by now. Idempotent."""
        with self.stopping:       # a second caller waits until the first is through
            with nogil:
                plane_stop(self.plane)
        pool_drain_released(self.plane.pool)

    def shut(self):
        """After stop() and the last take_notes(): close the descriptors."""
        plane_shut(self.plane)

    def abandon(self):
        """In a forked child: close the inherited descriptors, touch nothing else."""
        cdef uint32_t slot
        cdef Engine* e
        self.forked = True
        for slot in range(self.plane.n_slots):
            e = engine_at(self.plane, slot)
            if e.fd >= 0:
                for fd in (e.fd, e.media_fds[0], e.media_fds[1]):
                    if fd >= 0:
                        os.close(fd)
        plane_abandon(self.plane)

    def notes_fileno(self) -> int:
        return self.plane.notes.fd

    def take_notes(self, list out not None) -> None:
        """Appends (kind, socket, engine, peer, code, fatal, text), oldest first."""
        cdef Note* note = mailbox_take(&self.plane.notes)
        cdef Note* following
        cdef ControlNote* c
        while note != NULL:
            following = note.next
            c = <ControlNote*> note
            out.append((note.kind, c.sock, c.engine, c.peer, c.code, bool(c.fatal),
                        c.text[:c.size] if c.size else b""))
            if note.kind == NOTE_PATTERN:
                self.plane.pattern_notes.fetch_sub(1)
            if not c.fixed:
                free(note)
            note = following

    def facts(self, uint32_t slot) -> dict:
        """What an engine's peer said of itself; between its UP and DOWN notes and release()."""
        cdef Engine* e = engine_at(self.plane, slot)
        if e == NULL or e.codec == NULL:
            return {}
        peer = &e.codec.peer
        return {
            "major": peer.major, "minor": peer.minor,
            "pattern": (<char*> &peer.pattern[0]).decode("latin-1"),
            "routing_id": (<char*> peer.routing_id.at)[:peer.routing_id.n],
            "metadata": (<char*> peer.metadata.at)[:peer.metadata.n],
            "mechanism": (<char*> &peer.mechanism[0]).decode("latin-1"),
            "proof": (<char*> peer.proof.at)[:peer.proof.n],
        }

    def asked(self, uint32_t slot) -> tuple:
        """The credentials that an engine's codec asks about: (username, password), (key,), or ().
        Between its ASKS and DOWN notes, before it is judged; the engine waits."""
        cdef Engine* e = engine_at(self.plane, slot)
        peer = &e.codec.peer
        proof = (<char*> peer.proof.at)[:peer.proof.n]
        if e.codec.security.mechanism == CURVE:
            return (proof,)
        if e.codec.security.mechanism != PLAIN:
            return ()
        return (proof, (<char*> peer.password.at)[:peer.password.n])

    def judge(self, uint32_t slot, int code, str text) -> None:
        """The answer to it, by the numbers of ZAP. Once; `text` is for our own events."""
        cdef Verdict verdict
        cdef bytes why = text.encode("utf-8", "replace")[:sizeof(verdict.text) - 1]
        memset(&verdict, 0, sizeof(Verdict))
        verdict.code = code
        memcpy(verdict.text, <const char*> why, len(why))
        if engine_judge(engine_at(self.plane, slot), &verdict):
            raise MemoryError

    def release(self, uint32_t slot) -> None:
        """The engine's slot may be used again; after its DOWN note."""
        engine_release(engine_at(self.plane, slot))

    def drain(self) -> int:
        """Let go of Python objects whose bytes have been sent. How many."""
        return pool_drain_released(self.plane.pool)

    @property
    def poller(self) -> str:
        return self.plane.poller.name.decode()

    def set_watched(self, bint on) -> None:
        self.plane.watched.store(on)

    def counters(self) -> dict:
        """Leak counters: what is alive now."""
        return {
            "slabs": self.plane.pool.live.load(),
            "slab_bytes": self.plane.pool.live_bytes.load(),
            "links": self.plane.links.load(),
            "engines": self.plane.engines.load(),
            "sockets": self.plane.socks.load(),
        }

    @property
    def allocations(self) -> int:
        """Blocks ever allocated for message bodies: a steady stream does not move it."""
        return self.plane.pool.allocations.load()
