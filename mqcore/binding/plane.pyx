"""PlaneCore: the data plane of a context as Python holds it."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from mqcore.base.slab cimport pool_drain_released
from mqcore.link.engine cimport Engine, engine_judge, engine_release
from mqcore.link.plane cimport (
    NOTE_PATTERN, ControlNote, plane_abandon, plane_free, plane_new, plane_shut, plane_step,
    plane_stop,
)
from mqcore.link.slots cimport engine_at
from mqcore.reactor.epoll cimport epoll_ops
from mqcore.reactor.io_thread cimport TICK_FLUSH, io_due, io_wake
from mqcore.reactor.mailbox cimport Note, mailbox_take
from mqcore.sock.batching cimport batch_settle
from mqcore.spi.message_engine cimport MORE_FDS
from mqcore.wire.codec cimport Verdict
from mqcore.wire.zmtp.security cimport CURVE, PLAIN

import os

from mqcore.base.native import threading


@cython.no_gc_clear
cdef class PlaneCore:
    """Pool, I/O threads and engine slots. Owned by a Context; ended by stop(), freed with the
    object."""

    def __cinit__(self, int io_threads=1, double lead_tick=0.01,
                  double flush_tick=0, bint histograms=False, int64_t virtual=0,
                  uint64_t chance=0):
        cdef int i
        self.plane = plane_new(epoll_ops(), io_threads, <int64_t> (lead_tick * 1e9), virtual)
        self.stopping = threading.Lock()
        if self.plane == NULL:
            raise OSError("cannot start the I/O threads: descriptors or memory are short")
        self.plane.histograms = histograms
        self.plane.chance = chance
        for i in range(io_threads if flush_tick else 0):    # they tick from the first socket on
            self.plane.ios[i].ticks[TICK_FLUSH].period = <int64_t> (flush_tick * 1e9)

    def __dealloc__(self):
        if self.plane != NULL and not self.forked:
            with nogil:           # it joins I/O threads, which may wait for the GIL
                plane_stop(self.plane)
            pool_drain_released(self.plane.pool)
            plane_free(self.plane)

    def tick_now(self):
        """For tests with a flush_tick: the next one comes at once, and others every millisecond."""
        cdef int i
        for i in range(self.plane.n_ios):
            self.plane.ios[i].ticks[TICK_FLUSH].period = 1000000
            self.plane.ios[i].ticks[TICK_FLUSH].next = 0
            io_wake(self.plane.ios[i])

    def stop(self):
        """Join the I/O threads. Every socket is closed by now. Idempotent."""
        with self.stopping:       # a second caller waits until the first is through
            with nogil:
                plane_stop(self.plane)
        pool_drain_released(self.plane.pool)

    def settle(self):
        """The calling thread is about to sleep: write what it owes at any socket."""
        if not self.forked:
            batch_settle(self.plane)

    def step(self) -> int:
        """Of a plane without threads: one turn of the I/O loop. How much there was to do; 0: it
        waits for its time or a descriptor."""
        cdef int done
        with nogil:
            done = plane_step(self.plane)
        return done

    def set_time(self, int64_t now) -> None:
        """Of a plane without threads: the time in ns, which never goes back."""
        cdef int i
        for i in range(self.plane.n_ios):
            self.plane.ios[i].virtual = now

    def due(self) -> int:
        """The same: when the next timer is due, in ns; a number above 2**62: none is."""
        cdef int64_t when = io_due(self.plane.ios[0])
        cdef int i
        for i in range(1, self.plane.n_ios):
            when = min(when, io_due(self.plane.ios[i]))
        return when

    def shut(self):
        """After stop() and the last take_notes(): close the descriptors."""
        plane_shut(self.plane)

    def abandon(self):
        """In a forked child: close the inherited descriptors, touch nothing else."""
        cdef uint32_t slot
        cdef Engine* e
        cdef int i
        self.forked = True
        for slot in range(self.plane.n_slots):
            e = engine_at(self.plane, slot)
            if e.fd >= 0:
                held = [e.fd, e.media_timer]
                for i in range(MORE_FDS + 2):
                    held.append(e.media_fds[i])
                for fd in held:
                    if fd >= 0:
                        os.close(fd)
        plane_abandon(self.plane)

    def notes_fileno(self) -> int:
        return self.plane.notes.fd

    def has_notes(self) -> bool:
        return self.plane.notes.head.load() != NULL

    def take_notes(self, list out not None) -> None:
        """Appends (kind, socket, engine, peer, code, fatal, text, unread, carried), oldest
        first."""
        cdef Note* note = mailbox_take(&self.plane.notes)
        cdef Note* following
        cdef ControlNote* c
        while note != NULL:
            following = note.next
            c = <ControlNote*> note
            out.append((note.kind, c.sock, c.engine, c.peer, c.code, bool(c.fatal),
                        c.text[:c.size] if c.size else b"", c.unread, bool(c.carried)))
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
        """The credentials of a peer in authentication: (username, password), (key,), or (). Call
        between the ASKS and DOWN notes of the engine, before the result; the engine waits."""
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
