"""A device: see device.pxd. Its thread leads both sockets while it runs. It sleeps on a set over
their two sets, runs their engines itself, and moves what they decoded in bursts. So a message
passes without another thread and leaves in one write with its neighbors. The device reads a source
only while the sink has space, so back-pressure passes through it. It buffers at most one burst.

A passing message belongs to no request here: `_take` clears `Msg.peer` (for the sending socket it
would be a context's number), and `Msg.hops` stays. A request's envelope grows by one id at each
device, which reveals routing loops (`hops_of`); ZMTP itself has no such limit.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from mqcore.base.message cimport (
    MSG_MORE, Msg, msg_close, msg_copy, msg_data, msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_OK
from mqcore.devices.hooks cimport Burst, HookCore, SocketTap, Stage, stages_run
from mqcore.reactor.includes cimport errno
from mqcore.reactor.poller cimport PollerOps, Ready
from mqcore.reactor.wakeup cimport futex_wait
from mqcore.sock.counters cimport undeliver
from mqcore.sock.calls cimport sock_query
from mqcore.sock.events cimport sock_act, sock_changed
from mqcore.sock.sock cimport sock_enter, sock_leave, sock_recv_many, sock_send_many
from mqcore.sock.watch cimport lead_claim, lead_enter, lead_leave, watch_wait
from mqcore.spi.hook cimport HOOK_BACK, HOOK_FORTH
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_EXCHANGE, PAT_RECV, PAT_SEND, PAT_SINGLE, PAT_WORDS, Q_CAN_SEND,
)
from mqcore.spi.pipe cimport DROP_HOPS
from mqcore.spi.sink cimport SINK_ABI, SinkOps

import os

from mqcore.base.native import time
from mqcore.base.waits import Released

from mqcore.errors import UsageError

cdef enum:
    BURST = 256               # messages moved at a time in one direction
    BURST_BYTES = 1 << 20
    CHECK_NS = 1000000000     # longest sleep; nothing depends on it


# -- a socket as a sink ----------------------------------------------------------------------------

cdef int _take(void* self, MsgVec* v, size_t start, size_t* done) noexcept nogil:
    cdef size_t count = 0
    cdef size_t i
    for i in range(start, v.n):
        v.at[i].peer = 0      # where it came from says nothing to a socket that sends
    return sock_send_many(<Sock*> self, v, start, done, &count)


cdef int _ready(void* self) noexcept nogil:
    return sock_query(<Sock*> self, Q_CAN_SEND, NULL, 0) > 0


cdef SinkOps SOCKET_SINK
SOCKET_SINK.abi = SINK_ABI
SOCKET_SINK.take = _take
SOCKET_SINK.ready = _ready
SOCKET_SINK.durable = NULL
SOCKET_SINK.place = NULL
SOCKET_SINK.commit = NULL
SOCKET_SINK.error = NULL


# -- what passes -----------------------------------------------------------------------------------

cdef size_t hops_of(Msg* parts, size_t n) noexcept nogil:
    """The number of ROUTERs that a message passed before the one that put the first part in front:
    the ids before the empty part in a ROUTER's form (00 and four bytes). A named peer that occurs
    twice also means a loop. Without an empty part the message has no envelope."""
    cdef size_t hops = 0
    cdef size_t size
    cdef uint8_t* data
    cdef size_t i
    for i in range(1, n):
        size = msg_size(&parts[i])
        data = msg_data(&parts[i])
        if size == 0:
            return hops
        if (size == 5 and data[0] == 0) or (
                size == msg_size(&parts[0]) and memcmp(data, msg_data(&parts[0]), size) == 0):
            hops += 1
    return 0


cdef void drop_looping(Sock* s, uint32_t peer) noexcept nogil:
    """A message that was read from this peer is dropped after all, and counted at it."""
    sock_enter(s)
    undeliver(s, peer, DROP_HOPS)
    sock_leave(s, True)


cdef size_t admit(Flow* flow) noexcept nogil:
    """Makes what was just read ready to be sent; drops what has passed too many devices. How many
    messages are left in the hand."""
    cdef Msg* at = flow.hand.at
    cdef Sock* s = flow.source
    cdef bint requests = s.flags & PAT_ADDRESSES and s.flags & PAT_WORDS
    cdef size_t most = s.host.max_hops
    cdef size_t i = 0
    cdef size_t kept = 0
    cdef size_t count = 0
    cdef size_t n, k
    while i < flow.hand.n:
        n = 1
        while at[i + n - 1].flags & MSG_MORE:
            n += 1
        if requests and n > most + 2 and hops_of(at + i, n) > most:
            drop_looping(s, at[i + n - 1].peer)
            for k in range(i, i + n):
                msg_close(&at[k])
        else:
            count += 1
            for k in range(i, i + n):
                if kept != k:
                    at[kept] = at[k]
                kept += 1
        i += n
    flow.hand.n = kept
    return count


cdef bint _open(Flow* flow, Sock* source, Sock* target) noexcept nogil:
    memset(&flow.hand, 0, sizeof(MsgVec))
    memset(&flow.spare, 0, sizeof(MsgVec))
    flow.source = source
    flow.sink.ops = &SOCKET_SINK
    flow.sink.self = target
    flow.open = source.flags & PAT_RECV != 0 and target.flags & PAT_SEND != 0
    return flow.open


cdef class DeviceCore:
    """front and back belong to the device from here on. run() blocks until stop(). Twice the same
    socket: what it receives it sends."""

    def __cinit__(self, SocketCore front, SocketCore back, SocketCore capture=None,
                  list hooks=None):
        cdef SocketCore s
        self.failed = -1
        self.front = front
        self.back = back
        self.capture = capture
        if capture is front or capture is back:
            raise UsageError("the capture of a device needs a socket of its own")
        for s in (front, back, *((capture,) if capture is not None else ())):
            s.check()
            if s.s.flags & PAT_EXCHANGE and not any(row[0] == "raw" for row in s.plugin.options):
                raise UsageError(f"a {s.plugin.name} socket cannot be the end of a device: it "
                                 "takes one message at a time and gives one back",
                                 hint="use their raw forms: Router where requests come in, Dealer "
                                      "where they go out")
            if s.s.flags & PAT_ADDRESSES and s.s.flags & PAT_SINGLE:
                raise UsageError(f"a {s.plugin.name} socket cannot be the end of a device: its "
                                 "messages have no part that says whom they are for",
                                 hint="Router and Dealer are made for that; or recv_msg() and "
                                      "send_to() in a loop of your own")
        if front.plane is not back.plane:
            raise UsageError("both sockets of a device belong to one context")
        if capture is not None and not capture.s.flags & PAT_SEND:
            raise UsageError(f"a {capture.plugin.name} socket cannot be the capture of a device",
                             hint="use push, pub or pair")
        forth = _open(&self.forth, front.s, back.s)
        back_ = front is not back and _open(&self.back_flow, back.s, front.s)
        if not forth and not back_:
            raise UsageError(f"nothing can flow between {front.plugin.name} and {back.plugin.name}")
        self.add_hooks(hooks)
        self.take([front, *([back] if back is not front else ()),
                   *([capture] if capture is not None else ()),
                   *dict.fromkeys([hook.socket for hook in self.hooks
                                   if isinstance(hook, SocketTap)])])

    def __dealloc__(self):
        _close_hand(&self.forth)
        _close_hand(&self.back_flow)
        vec_fini(&self.forth.hand)
        vec_fini(&self.forth.spare)
        vec_fini(&self.back_flow.hand)
        vec_fini(&self.back_flow.spare)
        free(self.stages.at)

    cdef int add_hooks(self, list hooks) except -1:
        """The stages of all hooks, which self.hooks keeps alive."""
        cdef HookCore hook
        cdef uint32_t seen = 0
        self.hooks = list(hooks or ())
        if not hooks:
            return 0
        self.stages.at = <Stage**> calloc(len(hooks), sizeof(Stage*))
        if self.stages.at == NULL:
            raise MemoryError()
        for hook in hooks:
            self.stages.at[self.stages.n] = &hook.stage
            self.stages.n += 1
            seen |= hook.stage.directions
        self.forth.hooked = seen & HOOK_FORTH
        self.back_flow.hooked = seen & HOOK_BACK
        return 0

    cdef int take(self, list sockets) except -1:
        """All of them, or none: calls that wait at a claimed socket fail. In an order of its own,
        so that one of several devices gets them."""
        cdef SocketCore s
        cdef list taken = []
        if self.front.open_watch() < 0 or self.back.open_watch() < 0:
            raise OSError("no descriptors left for the device")
        for s in sockets:
            s.check()
        try:
            for s in sorted(sockets, key=id):
                s.claim()
                taken.append(s)
        except BaseException:
            for s in taken:
                s.unclaim()
            raise
        return 0

    # -- on the device's thread --------------------------------------------------------------------

    def run(self):
        """Move messages until stop(), or until one of the sockets is closed (at exit, say). Returns
        the hook that stopped the device, or None."""
        cdef const PollerOps* ops = self.front.s.plane.poller
        cdef int failure = 0
        self.set = ops.open()
        if self.set == NULL:
            raise OSError("no descriptors left for the device")
        self.front.s.users.fetch_add(1)     # close() says so, then waits: the sets stay until then
        self.back.s.users.fetch_add(1)
        try:
            if self.goes_on():
                self.make_raw()
                if ops.add_set(self.set, self.front.s.set, self.front.s) or (
                        self.back is not self.front
                        and ops.add_set(self.set, self.back.s.set, self.back.s)):
                    failure = errno
                else:
                    with nogil:
                        self.loop()
        finally:
            ops.close(self.set)
            self.front.s.users.fetch_sub(1)
            self.back.s.users.fetch_sub(1)
        if failure:
            raise OSError(failure, f"the device cannot watch its sockets: {os.strerror(failure)}")
        return self.hooks[self.failed] if self.failed >= 0 else None

    cdef int make_raw(self) except -1:
        """The sockets expose their envelopes to the device. Not before it runs: one that is refused
        leaves them as they were."""
        cdef SocketCore s
        for s in (self.front, self.back):
            if any(row[0] == "raw" for row in s.plugin.options):
                s._set_pattern_option("raw", True)
        return 0

    cdef bint goes_on(self) noexcept nogil:
        return not (self.stopping.load() or self.front.s.closing.load()
                    or self.back.s.closing.load() or self.failed >= 0)

    cdef void loop(self) noexcept nogil:
        cdef uint32_t seen_front, seen_back
        cdef bint moved
        cdef bint two = self.front.s != self.back.s
        take_lead(self.front.s)
        if two:
            take_lead(self.back.s)
        while self.goes_on():
            seen_front = self.front.s.change.load()
            seen_back = self.back.s.change.load()
            self.harvest(self.front.s)
            if two:
                self.harvest(self.back.s)
            moved = False
            if not self.paused.load():
                moved = self.move(&self.forth)
                moved = self.move(&self.back_flow) or moved
            if not moved:
                self.sleep(seen_front, seen_back)
        give_lead(self.front.s)
        if two:
            give_lead(self.back.s)

    cdef void harvest(self, Sock* s) noexcept nogil:
        cdef Ready[16] found
        cdef int n = watch_wait(s, found, 16, 0)
        if n > 0:
            sock_act(s, found, n)

    cdef bint move(self, Flow* flow) noexcept nogil:
        """One burst. True: something moved."""
        cdef size_t count = 0, done = 0, before
        cdef int rc
        if not flow.open:
            return False
        if flow.at == flow.hand.n:
            vec_clear(&flow.hand)
            flow.at = 0
            if not flow.sink.ops.ready(flow.sink.self):
                return False
            sock_recv_many(flow.source, &flow.hand, BURST, BURST_BYTES, &count)
            if count == 0:
                return False
            count = admit(flow)
            if flow.hooked and count:
                count = self.pass_hooks(flow, count)
            if count == 0:
                return True
            if self.capture is not None:
                self.tap(flow, 0)
            _tally(flow, count)
        before = flow.at
        rc = flow.sink.ops.take(flow.sink.self, &flow.hand, flow.at, &done)
        flow.at = done
        if rc == MQ_OK:
            flow.hand.n = 0   # every handle is the sink's now
            flow.at = 0
            return True
        if rc != MQ_AGAIN and rc != MQ_FULL:
            _skip(flow)
            return True
        return done != before

    cdef size_t pass_hooks(self, Flow* flow, size_t count) noexcept nogil:
        """What the hooks leave of a burst of `count` messages."""
        cdef Sock* from_ = flow.source
        cdef Sock* to = <Sock*> flow.sink.self
        cdef Burst burst
        cdef int stopped
        burst.hand = &flow.hand
        burst.spare = &flow.spare
        burst.pool = self.front.s.plane.pool
        burst.direction = flow.hooked
        burst.words = (from_.flags | to.flags) & PAT_WORDS != 0
        burst.routed = (from_.flags | to.flags) & PAT_ADDRESSES != 0
        burst.cut = 0
        stopped = stages_run(&self.stages, &burst, &count)
        if self.failed < 0:
            self.failed = stopped
        self.discarded.fetch_add(burst.cut)
        return count

    cdef void tap(self, Flow* flow, size_t before) noexcept nogil:
        """A copy of what passes goes to the capture socket; what it cannot take is counted."""
        cdef MsgVec copies
        cdef Msg m
        cdef size_t done = 0, taken = 0, i
        cdef int64_t messages = 0
        memset(&copies, 0, sizeof(MsgVec))
        for i in range(before, flow.hand.n):
            msg_copy(&m, &flow.hand.at[i])
            m.peer = 0
            vec_push(&copies, &m)
            messages += not m.flags & MSG_MORE
        sock_send_many(self.capture.s, &copies, 0, &done, &taken)
        self.captured.fetch_add(<int64_t> taken)
        self.missed.fetch_add(messages - <int64_t> taken)
        for i in range(done, copies.n):
            msg_close(&copies.at[i])
        copies.n = 0
        vec_fini(&copies)

    cdef void sleep(self, uint32_t seen_front, uint32_t seen_back) noexcept nogil:
        """Until either socket changes or one of their descriptors does."""
        cdef Sock* a = self.front.s
        cdef Sock* b = self.back.s
        cdef Ready[2] found
        a.lead_asleep.exchange(1)
        b.lead_asleep.exchange(1)
        if (a.change.load() == seen_front and b.change.load() == seen_back
                and self.goes_on()):
            a.plane.poller.wait(self.set, found, 2, CHECK_NS, NULL)
        a.lead_asleep.exchange(0)
        b.lead_asleep.exchange(0)

    # -- any thread --------------------------------------------------------------------------------

    def stop(self):
        self.stopping.store(1)
        sock_changed(self.front.s)
        sock_changed(self.back.s)

    def set_paused(self, bint on):
        self.paused.store(on)
        sock_changed(self.front.s)

    def finish(self, double seconds):
        """After run(): deliver what is in hand for at most so long. What could not be delivered is
        counted as discarded."""
        cdef Flow* flow
        cdef double end = time.monotonic() + seconds
        cdef size_t done = 0, left = 0
        cdef int rc
        cdef int i
        for i in range(2):
            flow = &self.forth if i == 0 else &self.back_flow
            while flow.at < flow.hand.n:
                rc = flow.sink.ops.take(flow.sink.self, &flow.hand, flow.at, &done)
                flow.at = done
                if rc == MQ_OK:
                    flow.hand.n = 0
                    flow.at = 0
                elif rc != MQ_AGAIN and rc != MQ_FULL:
                    _skip(flow)
                elif time.monotonic() >= end:
                    break
                else:
                    with Released():
                        time.sleep(0.001)
            left += _close_hand(flow)
        self.discarded.fetch_add(<int64_t> left)

    def release(self):
        self.front.unclaim()
        self.back.unclaim()
        if self.capture is not None:
            self.capture.unclaim()
        for tap in self.hooks:
            if isinstance(tap, SocketTap):
                (<SocketTap> tap).socket.unclaim()

    def counters(self):
        """(messages forth, bytes forth, refused forth, messages back, bytes back, refused back,
        captured, missed by the capture, discarded)"""
        return (self.forth.messages.load(), self.forth.bytes_.load(), self.forth.refused.load(),
                self.back_flow.messages.load(), self.back_flow.bytes_.load(),
                self.back_flow.refused.load(),
                self.captured.load(), self.missed.load(), self.discarded.load())


cdef void _tally(Flow* flow, size_t count) noexcept nogil:
    cdef int64_t size = 0
    cdef size_t i
    for i in range(flow.at, flow.hand.n):
        size += <int64_t> msg_size(&flow.hand.at[i])
    flow.messages.fetch_add(<int64_t> count)
    flow.bytes_.fetch_add(size)


cdef void _skip(Flow* flow) noexcept nogil:
    """The message in front is refused for good: a reply to a peer that has left, say."""
    cdef bint more = True
    while more and flow.at < flow.hand.n:
        more = flow.hand.at[flow.at].flags & MSG_MORE
        msg_close(&flow.hand.at[flow.at])
        flow.at += 1
    flow.refused.fetch_add(1)
    if flow.at == flow.hand.n:
        flow.hand.n = 0
        flow.at = 0


cdef size_t _close_hand(Flow* flow) noexcept nogil:
    cdef size_t left = 0
    while flow.at < flow.hand.n:
        left += not flow.hand.at[flow.at].flags & MSG_MORE
        msg_close(&flow.hand.at[flow.at])
        flow.at += 1
    flow.hand.n = 0
    flow.at = 0
    return left


cdef void take_lead(Sock* s) noexcept nogil:
    """For as long as the device runs; the I/O thread does not watch meanwhile."""
    cdef uint32_t nobody = 0
    cdef uint32_t seen
    while not s.lead.compare_exchange_strong(nobody, 1):
        nobody = 0
        lead_claim(s)
        # SYNC: seq_cst pair with lead_leave: the leader gives the lead up, then looks for followers
        s.followers.fetch_add(1)
        sock_changed(s)       # a leader in recv() leaves, and its call fails: a device owns it
        seen = s.change.load()
        if s.lead.load():
            futex_wait(&s.change, seen, CHECK_NS)
        s.followers.fetch_sub(1)
    lead_enter(s)


cdef void give_lead(Sock* s) noexcept nogil:
    lead_leave(s)
    sock_changed(s)
