"""A bench for patterns: a host without sockets, whose pipes' far sides are driven from Python.

    bench = Bench(plugin)
    far = bench.attach()              # a peer; Refused if the pattern does not want it
    far.put(b"topic", b"body")        # the peer sent a message
    bench.recv()                      # [b"topic", b"body"], or a Status
    bench.send(b"x")                  # Status.OK
    far.take()                        # [b"x"]: what the pattern wrote to that peer, or None
    bench.open(1)                     # a context; send(.., context=1), recv(context=1), ...
    bench.alarm()                     # the time that the pattern wants to be called at; ring(at)
    bench.check()                     # the accounting laws
    bench.close()                     # all peers gone; raises if a body is still held

One thread, no socket: `readable` and `writable` are called at once where a socket would call them
some time later (`quiet=True` holds them back until `wake`).
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from enum import IntEnum

from mqcore.base.message cimport (
    MSG_CANCEL, MSG_CONTROL, MSG_ENVELOPE, MSG_GROUP, MSG_MORE, MSG_SUBSCRIBE, Msg, MsgVec,
    msg_close, msg_data, msg_init_copy, msg_size, vec_fini, vec_push,
)
from mqcore.base.slab cimport Pool, pool_free, pool_new
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_DROPPED, MQ_FAILED, MQ_FULL, MQ_GONE, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK,
    MQ_OVER, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.base.ypipe cimport ypipe_fini, ypipe_flush, ypipe_init
from mqcore.base.yqueue cimport Chunk, chunk_slots
from mqcore.protocols.routing.request cimport Req
from mqcore.protocols.routing.survey cimport Surveyor
from mqcore.spi.drop import DROP_REASONS
from mqcore.spi.pattern cimport (
    EV_FAILED, EV_FAILED_BACK, EV_FAILED_OVER, EV_REFUSED, EV_SUBSCRIBED, EV_TOO_SLOW,
    EV_UNSUBSCRIBED, Pattern, PatternOps, PatternPlugin, Q_CAN_RECV, Q_CAN_SEND, Q_SUBSCRIBERS,
    Q_RESENT, Q_TOPICS, op_raise, plugin_new,
)
from mqcore.spi.lane cimport Lane, lane_read, lane_room, lane_show, lane_write, lane_write_latest
from mqcore.spi.pipe cimport (
    DIRTY_OUT, DIRTY_RESET, DIRTY_SHUT, DROP_CONFLATED, DROP_REASONS as N_REASONS, EV_DROPPED, Host,
    Pipe, parts_size,
)


class Status(IntEnum):
    OK = MQ_OK
    AGAIN = MQ_AGAIN
    NO_PEER = MQ_NO_PEER
    STATE = MQ_STATE
    UNSUPPORTED = MQ_UNSUPPORTED
    INVALID = MQ_INVALID
    NOMEM = MQ_NOMEM
    DROPPED = MQ_DROPPED
    GONE = MQ_GONE
    FULL = MQ_FULL
    FAILED = MQ_FAILED
    OVER = MQ_OVER


class Event(IntEnum):
    SUBSCRIBED = EV_SUBSCRIBED
    UNSUBSCRIBED = EV_UNSUBSCRIBED
    DROPPED = EV_DROPPED
    FAILED_OVER = EV_FAILED_OVER
    FAILED_BACK = EV_FAILED_BACK
    TOO_SLOW = EV_TOO_SLOW
    REFUSED = EV_REFUSED
    FAILED = EV_FAILED


class Refused(Exception):
    """attach() returned something else than MQ_OK; `status` says what."""

    def __init__(self, status):
        super().__init__(status)
        self.status = status


QUERIES = {"subscribers": Q_SUBSCRIBERS, "can_send": Q_CAN_SEND, "can_recv": Q_CAN_RECV,
           "topics": Q_TOPICS, "resent": Q_RESENT}
NO_LIMIT = 0x7fffffffffffffff


cdef struct BenchEvent:
    uint32_t what
    uint32_t peer
    uint8_t* data
    size_t size

cdef struct BenchHost:
    Host host
    BenchEvent* events
    size_t n


cdef void bench_emit(Host* host, uint32_t what, Pipe* pipe, const uint8_t* data,
                     size_t size) noexcept nogil:
    """As a socket's: no Python, and the data is the caller's once this returns."""
    cdef BenchHost* bench = <BenchHost*> host
    cdef BenchEvent* e
    bench.events = <BenchEvent*> realloc(bench.events, (bench.n + 1) * sizeof(BenchEvent))
    e = &bench.events[bench.n]
    e.what = what
    e.peer = pipe.id if pipe != NULL else 0
    e.data = <uint8_t*> malloc(size + 1)
    e.size = size
    if size:
        memcpy(e.data, data, size)
    bench.n += 1


cdef inline const uint8_t* as_data(bytes data):
    return <const uint8_t*> <char*> data


cdef Lane* lane_new(msgs, bytes_, bint conflate) except NULL:
    cdef Lane* lane = <Lane*> calloc(1, sizeof(Lane))
    if lane == NULL or ypipe_init(&lane.q):
        raise MemoryError
    lane.hwm_msgs = NO_LIMIT if msgs is None else msgs
    lane.hwm_bytes = NO_LIMIT if bytes_ is None else bytes_
    lane.step = 1
    lane.step_bytes = INT64_MAX
    lane.conflate = conflate
    return lane


cdef void lane_free(Lane* lane):
    cdef Msg m
    while lane_read(lane, &m):
        msg_close(&m)
    ypipe_fini(&lane.q)
    free(lane)


cdef int64_t lane_count(Lane* lane):
    """Application messages inside a lane, published or not, without touching it."""
    cdef Chunk* chunk = lane.q.q.begin_chunk
    cdef uint32_t pos = lane.q.q.begin_pos
    cdef int64_t n = 0
    cdef Msg* m
    if lane.conflate:
        return lane.latest.load() != NULL
    while True:
        if pos == chunk.cap:
            chunk = chunk.next
            pos = 0
        m = chunk_slots(chunk) + pos
        if m == lane.q.f:
            return n
        if not m.flags & (MSG_MORE | MSG_CONTROL):
            n += 1
        pos += 1


cdef class Far:
    """The far side of one pipe."""

    cdef Pipe* pipe
    cdef readonly object bench
    cdef bytes _routing_id
    cdef readonly int id
    cdef readonly int resets              # how often the pattern wanted the link reopened
    cdef readonly int64_t sent            # application messages put in
    cdef readonly int64_t taken           # application messages taken out
    cdef readonly int hops                # of the last one
    cdef readonly bint hung_up
    cdef bint to_read, to_write

    def put(self, *parts, int control=0, int hops=0):
        """The peer sends a message, `control` among its first part's flags; True if its lane had
        room (it goes in anyway). `hops`: links it has passed."""
        cdef MsgVec v
        cdef bint room, awake, replaced = False
        cdef Lane* lane = self._pipe().inn
        memset(&v, 0, sizeof(v))
        fill(&v, parts, (<Bench> self.bench).pool)
        if control:
            v.at[0].flags |= control
        v.at[0].hops = hops
        room = lane_room(lane, parts_size(v.at, v.n))
        if lane.conflate:
            lane_write_latest(lane, v.at, &replaced)
            awake = replaced
            self.pipe.in_dropped[DROP_CONFLATED] += replaced
        else:
            if lane_write(lane, v.at, v.n, parts_size(v.at, v.n)):
                raise MemoryError
            awake = ypipe_flush(&lane.q)
        v.n = 0
        vec_fini(&v)
        if not control & MSG_CONTROL:
            self.sent += 1
        if not awake:
            self.to_read = True
            (<Bench> self.bench).settle()
        return room

    def put_subscribe(self, bytes topic):
        return self.put(topic, control=MSG_SUBSCRIBE)

    def put_cancel(self, bytes topic):
        return self.put(topic, control=MSG_CANCEL)

    def take_flags(self):
        """The next message for the peer as a list of (bytes, flags), or None."""
        cdef Lane* lane = self._pipe().out
        cdef Msg m
        cdef bint more
        parts = []
        if not lane_read(lane, &m):
            self._show(lane)
            return None
        self.hops = m.hops
        while True:
            more = m.flags & MSG_MORE
            parts.append((msg_data(&m)[:msg_size(&m)], m.flags))
            lane.r_bytes += <int64_t> msg_size(&m)
            if not m.flags & MSG_CONTROL and not more:
                self.taken += 1
            msg_close(&m)
            if not more:
                break
            if not lane_read(lane, &m):
                raise AssertionError("a message ends without its last part")
        lane.r_msgs += 1
        self._show(lane)
        return parts

    cdef _show(self, Lane* lane):
        if lane_show(lane):
            self.to_write = True
            (<Bench> self.bench).settle()

    def take(self):
        """The next application message as a list of bytes, or None; control is passed over."""
        while (parts := self.take_flags()) is not None:
            if not parts[0][1] & MSG_CONTROL:
                return [body for body, _ in parts]
        return None

    def take_control(self):
        """("subscribe" or "cancel", topic), or None; the flags of anything else."""
        parts = self.take_flags()
        if parts is None or not parts[0][1] & MSG_CONTROL:
            return parts
        return "subscribe" if parts[0][1] & MSG_SUBSCRIBE else "cancel", parts[0][0]

    def take_all(self):
        out = []
        while (parts := self.take()) is not None:
            out.append(parts)
        return out

    def hangup(self):
        """The far side is gone; what it sent can still be read."""
        cdef Bench bench = self.bench
        if not self.hung_up:
            self._pipe()
            self.hung_up = True
            bench.self_.ops.hangup(bench.self_, self.pipe)
            bench.settle()

    def detach(self):
        """The pattern forgets the pipe; the laws are checked a last time."""
        cdef Bench bench = self.bench
        self.hangup()
        bench.check()
        bench.self_.ops.detach(bench.self_, self.pipe)
        bench.settle()
        del bench.fars[self.id]
        self._free()

    @property
    def attached(self):
        return self.pipe != NULL

    @property
    def owed(self):
        return self._pipe().owed

    @property
    def offered(self):
        return self._pipe().offered

    @property
    def delivered(self):
        return self._pipe().delivered

    @property
    def queued_out(self):
        return lane_count(self._pipe().out)

    @property
    def queued_in(self):
        return lane_count(self._pipe().inn)

    @property
    def out_dropped(self):
        return drops(self._pipe().out_dropped)

    @property
    def in_dropped(self):
        return drops(self._pipe().in_dropped)

    cdef Pipe* _pipe(self) except NULL:
        if self.pipe == NULL:
            raise ValueError("this peer is gone")
        return self.pipe

    cdef _free(self):
        if self.pipe != NULL:
            lane_free(self.pipe.out)
            lane_free(self.pipe.inn)
            free(self.pipe)
            self.pipe = NULL


cdef drops(int64_t* counts):
    return {DROP_REASONS[i][0]: counts[i] for i in range(N_REASONS) if counts[i]}


cdef fill(MsgVec* v, parts, Pool* pool):
    cdef Msg m
    cdef bytes body
    for i, part in enumerate(parts):
        body = bytes(part)
        if msg_init_copy(&m, pool, <const uint8_t*> <char*> body, len(body)):
            raise MemoryError
        m.flags = MSG_MORE if i < len(parts) - 1 else 0
        if vec_push(v, &m):
            raise MemoryError


cdef class Bench:
    """One pattern with a host around it."""

    cdef BenchHost host
    cdef Pattern* self_
    cdef Pool* pool
    cdef readonly PatternPlugin plugin
    cdef readonly dict fars               # by id, attached ones
    cdef readonly int peer                # id in the parts of the last recv()
    cdef readonly int hops                # links that the last recv()'s message has passed
    cdef int last_id
    cdef public bint quiet                # hold readable and writable back until wake()
    cdef bint settling

    def __init__(self, PatternPlugin plugin, *, bint watched=True, int max_hops=8, **options):
        self.plugin = plugin
        self.fars = {}
        self.pool = pool_new()
        self.host.host.pool = self.pool
        self.host.host.emit = bench_emit
        self.host.host.watched.store(watched)
        self.host.host.max_hops = max_hops
        self.self_ = <Pattern*> calloc(1, plugin.ops.size)
        self.self_.ops = plugin.ops
        self.self_.host = &self.host.host
        if plugin.ops.init(self.self_):
            raise MemoryError
        for name, value in options.items():
            rc = self.set_option(name, value)
            if rc is not Status.OK:
                raise ValueError(f"{name}: {rc!r}")

    def __dealloc__(self):
        cdef size_t i
        for far in (self.fars or {}).values():
            if (<Far> far).pipe != NULL:
                self.self_.ops.detach(self.self_, (<Far> far).pipe)
                (<Far> far)._free()
        if self.self_ != NULL:
            self.self_.ops.fini(self.self_)
            free(self.self_)
        for i in range(self.host.n):
            free(self.host.events[i].data)
        free(self.host.events)
        if self.pool != NULL and self.pool.live.load() == 0:
            pool_free(self.pool)

    @property
    def events(self):
        """What the pattern told its host: (Event, id of the peer, data)."""
        cdef size_t i
        out = []
        for i in range(self.host.n):
            e = &self.host.events[i]
            out.append((Event(e.what), e.peer, e.data[:e.size]))
        return out

    def close(self):
        """Everybody leaves, the pattern ends; raises if message bodies are still held."""
        for far in list(self.fars.values()):
            far.detach()
        self.self_.ops.fini(self.self_)
        free(self.self_)
        self.self_ = NULL
        if self.pool.live.load():
            raise AssertionError(f"{self.pool.live.load()} bodies are still held")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()

    def set_option(self, str name, value):
        cdef bytes key = name.encode()
        cdef bytes data = value if isinstance(value, bytes) else b""
        number = 0 if isinstance(value, bytes) else int(value)
        return Status(self.self_.ops.set_option(self.self_, key, number, as_data(data), len(data)))

    def attach(self, routing_id=None, *, int prio=8, bint connected=False, bint unversioned=False,
               bint sp=False, hwm=1000, hwm_bytes=None, hwm_in=None, bint conflate=False,
               conflate_in=None):
        """A new peer: its far side. `hwm`, `hwm_bytes`: of the lane to it (None: no limit);
        `hwm_in`: what the lane from it says; a test that puts more in is not held to it;
        `conflate`: both lanes, unless `conflate_in` says otherwise for the one from it."""
        cdef Far far = Far.__new__(Far)
        cdef Pipe* p = <Pipe*> calloc(1, sizeof(Pipe))
        self.last_id += 1
        far.pipe = p
        far.bench = self
        far.id = self.last_id
        p.id = self.last_id
        p.host = &self.host.host
        p.out = lane_new(hwm, hwm_bytes, conflate)
        p.inn = lane_new(hwm_in, None, conflate if conflate_in is None else conflate_in)
        p.prio = prio
        p.connected = connected
        p.unversioned = unversioned
        p.sp = sp
        if routing_id:
            far._routing_id = bytes(routing_id)
            p.routing_id = <const uint8_t*> <char*> far._routing_id
            p.routing_id_size = len(routing_id)
        self.fars[far.id] = far
        rc = Status(self.self_.ops.attach(self.self_, p))
        self.settle()
        if rc is not Status.OK:
            del self.fars[far.id]
            far._free()
            raise Refused(rc)
        return far

    cpdef settle(self):
        """What a socket does when it lets go of its lock: flush, kick, pass wake-ups on."""
        cdef Pipe* p
        cdef Far far
        if self.settling:
            return
        self.settling = True
        while True:
            while self.host.host.dirty != NULL:
                p = self.host.host.dirty
                self.host.host.dirty = p.dirty_next
                far = self.fars.get(p.id)
                if p.dirty & DIRTY_OUT and not p.out.conflate:
                    ypipe_flush(&p.out.q)
                if p.dirty & (DIRTY_RESET | DIRTY_SHUT) and far is not None:
                    far.resets += 1
                p.dirty = 0
            if self.quiet or not self._pass_on():
                break
        self.settling = False

    cdef bint _pass_on(self):
        cdef Far far
        cdef bint some = False
        for far in list(self.fars.values()):
            if far.to_read:
                far.to_read = False
                self.self_.ops.readable(self.self_, far.pipe)
                some = True
            if far.to_write:              # after hangup too: it may have been under way
                far.to_write = False
                self.self_.ops.writable(self.self_, far.pipe)
                some = True
        return some

    def wake(self):
        """Deliver the wake-ups that `quiet` held back."""
        quiet = self.quiet
        self.quiet = False
        self.settle()
        self.quiet = quiet

    def open(self, uint32_t context):
        """A context, by a number not used before."""
        return Status(self.self_.ops.context(self.self_, context, True))

    def shut(self, uint32_t context):
        """It is one no more."""
        self.self_.ops.context(self.self_, context, False)
        self.settle()

    def alarm(self):
        """When the pattern wants to be called, ns; 0: it does not."""
        return self.host.host.alarm

    def ring(self, int64_t at=0):
        """It is that time (0: just what it wanted). The next alarm that it wants."""
        at = at or self.host.host.alarm
        self.host.host.alarm = 0
        self.self_.ops.alarm(self.self_, at)
        self.settle()
        return self.host.host.alarm

    def send(self, *parts, uint32_t context=0, int hops=0):
        """`hops`: links that it has passed, as a device may send it."""
        return self._send(None, parts, context=context, hops=hops)

    def send_to(self, int peer, *parts, size_t envelope=0):
        """`envelope`: so many parts in front are flagged as recv() flagged them."""
        return self._send(peer, parts, envelope)

    def send_group(self, *parts):
        """The first part is a group."""
        return self._send(None, parts, group=True)

    def _send(self, peer, parts, size_t envelope=0, bint group=False, uint32_t context=0,
              int hops=0):
        cdef MsgVec v
        cdef int rc
        cdef size_t i
        memset(&v, 0, sizeof(v))
        fill(&v, parts, self.pool)
        for i in range(envelope):
            v.at[i].flags |= MSG_ENVELOPE
        if group:
            v.at[0].flags |= MSG_GROUP
        v.at[0].peer = context
        v.at[0].hops = hops
        flags = [v.at[i].flags for i in range(v.n)]
        if peer is None:
            rc = self.self_.ops.send(self.self_, v.at, v.n)
        else:
            rc = self.self_.ops.send_to(self.self_, peer, v.at, v.n)
        if rc == MQ_OK or rc == MQ_DROPPED:
            v.n = 0           # taken
        elif [msg_data(&v.at[i])[:msg_size(&v.at[i])] for i in range(v.n)] != list(parts):
            raise AssertionError("a message that was not taken has been changed")
        elif [v.at[i].flags for i in range(v.n)] != flags:
            raise AssertionError("the flags of a message that was not taken have been changed")
        vec_fini(&v)
        self.settle()
        if rc == MQ_FAILED:
            op_raise()        # what the pattern's own Python raised
        return Status(rc)

    def recv_flags(self, uint32_t context=0):
        """The next message as a list of (bytes, flags), or a Status."""
        cdef MsgVec v
        cdef int rc
        cdef size_t i
        memset(&v, 0, sizeof(v))
        self.self_.context = context
        rc = self.self_.ops.recv(self.self_, &v)
        self.self_.context = 0
        self.settle()
        try:
            if rc:
                if v.n:
                    raise AssertionError("parts were left behind by a recv that failed")
                if rc == MQ_FAILED:
                    op_raise()
                return Status(rc)
            if v.n == 0:
                raise AssertionError("a message without parts")
            for i in range(v.n):
                if (v.at[i].flags & MSG_MORE != 0) != (i < v.n - 1):
                    raise AssertionError("MSG_MORE is not on all parts but the last")
            self.peer = v.at[v.n - 1].peer
            self.hops = v.at[0].hops
            return [(msg_data(&v.at[i])[:msg_size(&v.at[i])], v.at[i].flags) for i in range(v.n)]
        finally:
            vec_fini(&v)

    def recv(self, uint32_t context=0):
        """The next message as a list of bytes, or a Status."""
        got = self.recv_flags(context)
        return got if isinstance(got, Status) else [body for body, _ in got]

    def recv_all(self, uint32_t context=0):
        out = []
        while not isinstance(got := self.recv(context), Status):
            out.append(got)
        return out

    def subscribe(self, bytes topic, bint on=True, *, uint32_t context=0):
        self.self_.context = context
        rc = Status(self.self_.ops.subscribe(self.self_, as_data(topic), len(topic), on))
        self.self_.context = 0
        self.settle()
        return rc

    def unsubscribe(self, bytes topic, *, uint32_t context=0):
        return self.subscribe(topic, False, context=context)

    def abandon(self, uint32_t context=0):
        self.self_.context = context
        self.self_.ops.abandon(self.self_)
        self.self_.context = 0
        self.settle()

    def query(self, str what, bytes data=b"", *, uint32_t context=0):
        self.self_.context = context
        answer = self.self_.ops.query(self.self_, QUERIES[what], as_data(data), len(data))
        self.self_.context = 0
        self.settle()
        return answer

    def query_raw(self, int what):
        return self.self_.ops.query(self.self_, what, NULL, 0)

    @property
    def request(self):
        """REQ: the state of the socket's own request, a number of its table STATES."""
        return (<Req*> self.self_).own.state

    @property
    def survey(self):
        """SURVEYOR: that of its own survey."""
        return (<Surveyor*> self.self_).own.state

    @property
    def unmatched(self):
        return self.host.host.unmatched

    @property
    def dropped(self):
        return drops(self.host.host.dropped)

    @property
    def live_bodies(self):
        return self.pool.live.load()

    def check(self):
        """The accounting laws, for every peer that is attached."""
        cdef Far far
        for far in self.fars.values():
            out = far.taken + far.queued_out + sum(far.out_dropped.values())
            inn = far.delivered + far.queued_in + sum(far.in_dropped.values())
            assert far.offered == out, (
                f"peer {far.id} out: offered {far.offered} != taken {far.taken} + queued "
                f"{far.queued_out} + dropped {far.out_dropped}")
            assert far.sent == inn, (
                f"peer {far.id} in: sent {far.sent} != delivered {far.delivered} + queued "
                f"{far.queued_in} + dropped {far.in_dropped}")


cdef class _Altered:
    cdef PatternOps ops


def altered(PatternPlugin plugin, *, str without="", abi=None, flags=None, size=None, **facts):
    """The plug-in with something wrong in its table or its facts, as the registry may meet one."""
    cdef _Altered table = _Altered()
    cdef PatternOps* ops = &table.ops
    ops[0] = plugin.ops[0]
    if abi is not None:
        ops.abi = abi
    if flags is not None:
        ops.flags = flags
    if size is not None:
        ops.size = size
    if without == "init":
        ops.init = NULL
    elif without == "fini":
        ops.fini = NULL
    elif without == "set_option":
        ops.set_option = NULL
    elif without == "attach":
        ops.attach = NULL
    elif without == "detach":
        ops.detach = NULL
    elif without == "hangup":
        ops.hangup = NULL
    elif without == "readable":
        ops.readable = NULL
    elif without == "writable":
        ops.writable = NULL
    elif without == "send":
        ops.send = NULL
    elif without == "recv":
        ops.recv = NULL
    elif without == "query":
        ops.query = NULL
    made = plugin_new(ops, facts.get("name", plugin.name), facts.get("number", plugin.number),
                      facts.get("zmtp", plugin.zmtp), plugin.sp, facts.get("peers", plugin.peers),
                      facts.get("options", plugin.options), plugin.doc)
    made._keeps = table
    return made
