"""One engine for tests, brought into any state and left any event, without a peer or a socket.

    bench = Bench()
    bench.reach("ACTIVE")
    bench.leave("ASKED, reset")       # what the pump was called for, in order: "finish, read"
    bench.state                       # "DRAINING"

Everything runs in the calling thread. The pump only writes down that it was called; what a real one
reports ("shaken", "ended") it reports when it is told to.
"""

from libc.errno cimport EPIPE
from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libc.string cimport memset

from mqcore.base.clock cimport now_ns
from mqcore.link.engine cimport (
    DOWN_PEER, Engine, EngineConfig, EngineParts, Port, PortOps, PumpOps, engine_new,
    engine_release,
)
from mqcore.link.lease cimport ENGINE_DEAD, ENGINE_HANDSHAKE, engine_kick_here
from mqcore.link.pipe cimport EVENT_TERM, Link, link_unref
from mqcore.link.plane cimport Plane, plane_free, plane_new, plane_shut, plane_stop
from mqcore.link.session cimport session_attach, session_end
from mqcore.link.stream cimport stream_unwritten
from mqcore.reactor.epoll cimport epoll_ops
from mqcore.reactor.io_thread cimport Watch
from mqcore.reactor.mailbox cimport mailbox_take
from mqcore.spi.pipe cimport ASKED_CLOSE, ASKED_RESET, ASKED_SHUT, Pipe
from mqcore.wire.codecs cimport codec_find

import socket

from mqcore.link.lease import NOTES, STATES

cdef enum:
    SECOND = 1000000000

cdef enum:                    # what the pump shall report when it next reads
    NOTHING = 0
    SHAKEN = 1
    ENDED = 2
    BROKEN = 3                # when it next writes

# the way into each state, from a new engine
WAYS = {"NEW": [], "HANDSHAKE": ["START"], "ACTIVE": ["START", "shaken"],
        "DRAINING": ["START", "shaken", "ASKED, reset"],
        "READING": ["START", "shaken", "ASKED, shut"], "DEAD": ["START", "TERM"],
        "FREE": ["START", "TERM", "RELEASE"]}
BITS = {name: bit for name, bit, _, _ in NOTES}
NAMES = {number: name for name, number, _ in STATES}


cdef struct Stage:            # the socket of the engine, as far as it sees one
    Port port                 # first
    int reports
    int calls
    char[32] called


cdef void _called(Engine* e, char what) noexcept nogil:
    cdef Stage* stage = <Stage*> e.port
    if stage.calls < 32:
        stage.called[stage.calls] = what
        stage.calls += 1


cdef void _read(Engine* e) noexcept nogil:
    cdef Stage* stage = <Stage*> e.port
    cdef int reports = stage.reports
    if reports == BROKEN:
        return
    stage.reports = NOTHING
    if reports == NOTHING:
        _called(e, c"r")
    elif reports == ENDED:
        session_end(e, DOWN_PEER, NULL, 0)
    elif e.state == ENGINE_HANDSHAKE:
        session_attach(e)


cdef void _write(Engine* e) noexcept nogil:
    cdef Stage* stage = <Stage*> e.port
    e.codec.ctl.n = 0         # the greeting is out
    if stage.reports == BROKEN:
        stage.reports = NOTHING
        stream_unwritten(e, EPIPE)
    else:
        _called(e, c"w")


cdef int64_t _pending(Engine* e) noexcept nogil:
    return 0


cdef void _finish(Engine* e) noexcept nogil:
    _called(e, c"f")


cdef void _event(Pipe* pipe, uint32_t what) noexcept nogil:
    if what == EVENT_TERM:
        link_unref(<Link*> pipe.link)


cdef void _ended(Port* port) noexcept nogil:
    pass


cdef void _wants(Port* port, int delta) noexcept nogil:
    pass


cdef PumpOps PUMP
PUMP.read = _read
PUMP.write = _write
PUMP.pending = _pending
PUMP.finish = _finish

cdef PortOps PORT
PORT.event = _event
PORT.ended = _ended
PORT.wants = _wants


cdef class Bench:
    """One engine; make another for the next case."""

    cdef Plane* plane
    cdef Watch watch
    cdef Stage stage
    cdef Engine* e
    cdef list peers           # the other ends of descriptors

    def __cinit__(self):
        self.peers = []
        self.plane = plane_new(epoll_ops(), 1, SECOND, 0)
        if self.plane == NULL:
            raise MemoryError
        memset(<void*> &self.stage, 0, sizeof(Stage))
        self.watch.io = self.plane.ios[0]
        self.watch.set = self.plane.poller.open()
        self.stage.port.ops = &PORT
        self.stage.port.shake.pattern = b"PAIR"
        self.stage.port.shake.peers = b" PAIR "
        self.stage.port.send.msgs = self.stage.port.send.bytes = INT64_MAX
        self.stage.port.recv.msgs = self.stage.port.recv.bytes = INT64_MAX
        self.stage.port.most_begun.store(INT64_MAX)

    def make(self):
        """A new engine: its state is NEW."""
        cdef EngineConfig config
        cdef EngineParts parts
        memset(&config, 0, sizeof(EngineConfig))
        memset(&parts, 0, sizeof(EngineParts))
        config.connected = True
        config.handshake_timeout = config.heartbeat = config.heartbeat_timeout = SECOND
        config.max_message_size = -1
        parts.codec = codec_find(b"zmtp")
        ours, theirs = socket.socketpair()
        self.peers.append(theirs)
        self.e = engine_new(self.plane, self.watch.io, &self.watch, &self.stage.port,
                            ours.detach(), &config, &parts)
        if self.e == NULL:
            raise MemoryError
        self.e.pump = &PUMP

    def reach(self, str state):
        """A new engine, in this state."""
        self.make()
        for event in WAYS[state]:
            self.leave(event)
        if self.state != state:
            raise AssertionError(f"the way to {state} ended in {self.state}")

    @property
    def state(self):
        return NAMES[self.e.state]

    @property
    def hung_up(self):
        return self.e.hup != 0

    def hold_up(self, bint held):
        """The lane is full, or it has room again."""
        self.e.in_blocked = held

    def wait(self, seconds):
        """All that the engine has noted happened so much earlier."""
        cdef int64_t ago = seconds * <int64_t> SECOND
        self.e.born -= ago
        self.e.heard -= ago
        self.e.moved -= ago
        self.e.looked -= ago
        if self.e.spacious_since:
            self.e.spacious_since -= ago

    @property
    def held(self):
        """A note, or the lease, was left behind."""
        return self.e.word.load() != 0

    def leave(self, str event):
        """Leave one event. The calls of the pump that follow, in order, each kind once."""
        cdef Engine* e = self.e
        cdef Pipe* pipe = e.pipe
        note, _, circumstance = event.partition(", ")
        if circumstance == "late":
            e.born = e.heard = e.deaf = now_ns() - 10 * <int64_t> SECOND
            e.asked, e.ping_gap = e.heard + 1, 0
            if e.codec != NULL:
                e.codec.peer.major = 3
        elif circumstance == "held up":
            e.in_blocked = 1
        elif circumstance and pipe != NULL:
            pipe.asked.store({"close": ASKED_CLOSE, "reset": ASKED_RESET, "shut": ASKED_SHUT,
                              "nothing": 0}[circumstance])
        if note == "shaken" or note == "ended":
            self.stage.reports = SHAKEN if note == "shaken" else ENDED
            note = "IN"
        elif note == "broken":
            self.stage.reports = BROKEN
            note = "OUT"
        return self.leave_all(note)

    def leave_all(self, *notes):
        """The same of several notes at once."""
        self.stage.calls = 0
        engine_kick_here(self.e, sum(BITS[note] for note in notes))
        self.stage.reports = NOTHING
        kinds = {114: "read", 119: "write", 102: "finish"}
        return ", ".join(dict.fromkeys(kinds[self.stage.called[i]]
                                       for i in range(self.stage.calls)))

    def close(self):
        """The engine ends and is released; raises if an engine or a link is left."""
        if self.plane == NULL:
            return
        if self.e != NULL:
            if self.state == "NEW":
                self.leave("START")
            self.leave("TERM")
            if self.e.state == ENGINE_DEAD:
                engine_release(self.e)
        mailbox_take(&self.plane.notes)
        left = self.plane.engines.load(), self.plane.links.load()
        plane_stop(self.plane)
        plane_shut(self.plane)
        self.plane.poller.close(self.watch.set)
        plane_free(self.plane)
        self.plane = NULL
        for peer in self.peers:
            peer.close()
        if left != (0, 0):
            raise AssertionError(f"{left} engines and links are left")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
