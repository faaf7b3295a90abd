"""The engine: pumps bytes of one connection into messages and back, run by one thread at a time.

One thread runs an engine at a time, the holder of its lease: lease.pxd.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.bytes cimport Bytes
from mqcore.base.histogram cimport Latencies
from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.slab cimport Landing, Owner
from mqcore.link.pipe cimport Link, Marks
from mqcore.link.plane cimport ControlNote, Plane
from mqcore.reactor.io_thread cimport IoThread, Task, Watch
from mqcore.spi.filter_ops cimport Filter
from mqcore.spi.message_engine cimport MORE_FDS, MessageEngine
from mqcore.spi.lane cimport Lane
from mqcore.spi.pipe cimport FarOps, Pipe
from mqcore.wire.codec cimport Batch, Codec, CodecOps, HandshakeConfig, Input, Verdict
from mqcore.wire.zmtp.security cimport Security

cdef enum:                    # NOTE_DOWN codes
    DOWN_CLOSED = 0           # by us
    DOWN_PEER = 1             # the peer closed, or the connection broke
    DOWN_HANDSHAKE = 2        # refused, incompatible, malformed greeting
    DOWN_PROTOCOL = 3         # malformed traffic
    DOWN_TIMEOUT = 4          # handshake or heartbeat
    DOWN_RESET = 5            # the pattern asked for a new link; a raw one: it was sent the end
    DOWN_REPLACED = 6         # another link of the peer has its routing id
    DOWN_MEMORY = 7

cdef struct Port              # the socket, as its engines see it
cdef struct Engine

cdef struct PortOps:
    # Lock-free, any thread: note `what` (EVENT_*) on the pipe and wake waiting threads. `serve`: a
    # thread must handle it even if the application makes no call (attach, term, space for waiting
    # messages).
    void (*event)(Pipe* pipe, uint32_t what) noexcept nogil
    # The engine touches the socket no more.
    void (*ended)(Port* port) noexcept nogil
    # `delta` (1 or -1) more engines need the next edge at once, even if no caller leads: unsent
    # bytes, a handshake, a FIN awaited.
    void (*wants)(Port* port, int delta) noexcept nogil

cdef struct Port:
    const PortOps* ops
    HandshakeConfig shake
    Marks send                # marks of the lane to the peer
    Marks recv
    Landing landing           # filled by the receiving calls, emptied by the decoders
    atomic[uint32_t] next_peer
    uint32_t number           # the socket's number in the context
    atomic[Engine*] peeked    # a message engine that is worth asking before one sleeps
    atomic[int64_t] spin      # ns, how long
    atomic[int64_t] begun     # bytes of messages that have begun to arrive: Engine.begun of all
    atomic[int64_t] most_begun  # max_unfinished; INT64_MAX: no limit
    # Peers that have sent their last and left messages unread: how many, the bytes of these
    # messages in this process, and how many of the peers still have a descriptor, since more lies
    # in the kernel. Listeners stop accepting at these limits (sock/departed.pxd).
    atomic[int64_t] left
    atomic[int64_t] left_bytes
    atomic[int64_t] left_open
    atomic[int64_t] most_left   # max_departed; INT64_MAX: no limit
    atomic[int64_t] most_left_bytes  # recv_hwm_bytes
    # Traffic.unread and unacked of connections that ended without a pipe: before they had one, or
    # after it
    atomic[int64_t] unread
    atomic[int64_t] unacked
    int64_t most_left_open    # a share of the descriptors that the process may have
    Latencies* latencies      # NULL: not measured
    bint (*wanted)(void* pattern, Msg* first) noexcept nogil   # Host.wanted
    void* pattern             # for it

cdef inline uint32_t port_next_peer(Port* port) noexcept nogil:
    """A number for a new peer, never 0. After 2^32 peers of one socket numbers come again, so
    nothing may rely on the number of a peer that left so long ago."""
    cdef uint32_t number = 0
    while number == 0:
        number = port.next_peer.fetch_add(1) + 1
    return number


cdef inline bint port_crowded(Port* port) noexcept nogil:
    """Whether departed peers have left as much unread as they may: accept no more for now."""
    return (port.left.load() >= port.most_left.load()
            or port.left_bytes.load() >= port.most_left_bytes.load()
            or port.left_open.load() >= port.most_left_open)


cdef struct EngineConfig:     # of one connection; copied at adoption
    bint connected            # by our connect()
    int32_t prio
    int64_t handshake_timeout # ns; 0 none
    int64_t grace             # ns a listener waits for the peer's first bytes
    int64_t heartbeat         # ns; 0 none
    int64_t heartbeat_timeout
    int64_t heartbeat_ttl
    int64_t max_message_size  # bytes; -1 no limit

cdef struct EngineParts:      # what a connection is made of; the engine owns all of it once made
    const CodecOps* codec
    const Security* security  # outlives the engine; NULL: none
    Filter* filter            # NULL: none
    MessageEngine* media      # NULL: a stream
    const uint8_t* left       # bytes that came behind the handshakes of filters, copied
    size_t n_left
    const uint8_t* peer_id    # the routing id that the peer goes by, copied; none: what it says
    size_t n_peer_id

cdef struct PumpOps:          # stream.pyx, filtered.pyx, messages.pyx
    void (*read)(Engine* e) noexcept nogil      # bytes may be there, or space for messages
    void (*write)(Engine* e) noexcept nogil
    int64_t (*pending)(Engine* e) noexcept nogil  # written, and not taken by the peer
    # In order: tell the peer that nothing comes after what was written.
    void (*finish)(Engine* e) noexcept nogil

cdef struct Engine:
    Task task                 # posted: run with every right
    Task arm                  # posted once: start the timer on the I/O thread
    atomic[uint32_t] word     # HELD and the notes: lease.pxd
    uint32_t state            # ENGINE_*
    uint32_t slot
    atomic[uint64_t] tenant   # grows with each use and each release of the slot
    atomic[int64_t] period    # ns between looks at the clock
    Engine* free_next
    int fd
    uint32_t hup
    Plane* plane
    IoThread* io
    Watch* watch
    Port* port
    const FarOps* far_ops     # what the socket calls at our end of the pipe
    const PumpOps* pump
    Codec* codec
    Link* link
    Pipe* pipe
    Lane* inn                 # we write: messages from the peer
    Lane* out                 # we read: messages to the peer
    EngineConfig config
    # input
    Owner* slab
    Input input
    uint32_t klass            # size class of the next slab
    uint32_t low_water        # bytes that the kernel tells of together: reading.pxd
    uint32_t burst            # of a read, the most so far; larger ones as the largest low_water
    uint32_t in_blocked       # at an HWM: not reading until the socket frees space
    # at an HWM, and the peer has hung up or the link reads on: as counted in Port.left_bytes
    int64_t left_bytes
    int64_t in_size           # bytes of the message under way
    int64_t in_parts          # and its parts
    int64_t begun             # of the message under way, as counted in Port.begun
    uint32_t in_more          # parts of an incomplete message are in the lane
    uint32_t in_skip          # SKIP_*: the rest of a multipart message is discarded
    bint filters              # the peer does not: what is not wanted does not enter the lane
    uint32_t ended            # messages.pyx: the descriptor has ended, messages may be left
    bint leaves               # our side ends the link, in ENGINE_HANDSHAKE: see lease.pyx
    # ENGINE_READING
    int ends_as               # the DOWN_* of a link that our side ends; -1: as the peer's end says
    const char* ends_why      # and its text
    int64_t read_until        # Traffic.bytes_in at most; INT64_MAX: to the peer's end
    int64_t arrived           # Traffic.bytes_in with what had arrived when our side ended the link
    bint caught_up            # all of that has been read
    int64_t spacious_since    # since then our kernel had space at each look; 0: at the last, none
    int64_t moved             # when the peer was last seen to take what we had written
    uint32_t returned         # the socket has the lane to the peer again, and what was not sent
    # output
    Batch batch
    size_t ctl_sent
    uint32_t out_blocked
    uint32_t wants            # we told the port so
    uint32_t turned           # it has had its turn: others of this thread, or the GIL, wait
    int64_t turn_end          # ns: when its turn to read is over; 0: a caller reads, for itself
    # filtered.pyx: bytes as the filter made them, and of them
    Filter* filter
    uint32_t posted           # run on e.io alone, the filters' thread: the filter takes the GIL
    uint32_t filter_more      # the filter has more of what it was given
    Bytes wire
    size_t wire_sent          # in the kernel
    size_t wire_from          # where the bytes of the chunk under way begin
    size_t wire_mark          # behind it `wire_plain` bytes of the batch are out
    size_t wire_plain
    # messages.pyx
    MessageEngine* media
    # its descriptors, for a forked child to close; -1: none
    int[MORE_FDS + 2] media_fds
    int media_timer           # timerfd for MessageEngine.again; -1: none yet
    int64_t media_due         # when it rings, in ns; past: it does not
    int64_t media_untold      # units lost of which no event could be reported
    uint32_t media_started
    uint32_t media_out        # EVENT_WRITE is watched for
    int64_t media_held        # messages it had in hand when last looked at
    MsgVec held               # a message that the engine had no space for
    # stamps, ns
    int64_t born
    int64_t heard
    int64_t deaf              # when last seen at an HWM, or the peer: nothing is to be heard then
    int64_t pinged
    int64_t asked             # the first PING since `heard`; before it: none
    int64_t ping_came         # when the peer's PINGs were last seen to grow, and
    int64_t ping_gap          # how long that was after the time before
    int64_t looked            # at the clock
    int64_t queued            # bytes in the kernel then, while an answer was awaited, and
    int64_t taken             # how many the peer had taken of all
    int64_t message_end       # bytes_out when the last message was whole in the kernel
    int64_t behind            # and what was written since, when the link is given back
    bint resets               # the pattern asked for the end: what is written is not waited for
    uint32_t unsaid           # a PING waits behind a message that is being written
    uint32_t pings_seen
    uint32_t pings_sent
    uint32_t pongs_seen
    int unwatched             # errno: the poller could not watch the descriptor
    # notes for the control plane that must not need memory
    ControlNote up
    ControlNote asks
    ControlNote down
    char[200] down_text
    atomic[Verdict*] verdict  # what the codec asked for; NULL: nothing came

cdef Engine* engine_new(Plane* plane, IoThread* io, Watch* watch, Port* port, int fd,
                        # takes fd and parts; NULL: out of memory, they stay
                        const EngineConfig* config, const EngineParts* parts) noexcept nogil
cdef void engine_start(Engine* e) noexcept nogil          # register and go
# control thread, between NOTE_ASKS and NOTE_DOWN: what is decided about the peer. MQ_OK, MQ_NOMEM
cdef int engine_judge(Engine* e, const Verdict* verdict) noexcept nogil
# control thread, after NOTE_DOWN: slot is free
cdef void engine_release(Engine* e) noexcept nogil
# Bytes the kernel has not had acknowledged. last: the socket closes, and all its messages are
# written. The peer gets to know.
cdef int64_t engine_pending(Engine* e, bint last) noexcept nogil
