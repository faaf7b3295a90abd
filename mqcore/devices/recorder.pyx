"""RecorderCore: see recorder.pxd. Like a device's, its thread leads the socket while it runs, reads
it only while the sink is ready, and buffers at most one burst.

REP and RESPONDENT reply when the message is durable: a burst of requests, from any number of peers,
is stored, committed once, and answered. So all waiting requesters share the cost of an fsync. If
storing or committing fails, no request of the burst is answered and run() ends.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EIO
from libc.string cimport memcpy, memset

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_MORE, msg_close, msg_init_inline, msg_size, vec_fini,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_CLOSED, MQ_DROPPED, MQ_FULL, MQ_GONE, MQ_OK, MQ_STATE
from mqcore.reactor.includes cimport errno
from mqcore.reactor.poller cimport PollerOps, Ready
from mqcore.devices.mover cimport give_lead, take_lead
from mqcore.sock.events cimport sock_act, sock_changed
from mqcore.sock.sock cimport Sock, sock_recv_many, sock_send_to
from mqcore.sock.watch cimport watch_wait
from mqcore.spi.pattern cimport PAT_EXCHANGE, PAT_RECV
from mqcore.spi.sink cimport SINK_ABI, SINK_TOPIC

import os

from mqcore.errors import PluginError, UsageError

cdef enum:
    BURST_BYTES = 1 << 20
    CHECK_NS = 200000000      # longest sleep: the sink's own thread may meet an error meanwhile
    ANSWER = 16               # bytes of an answer
    REFUSED = 1               # its status
    TOO_OLD = 2
    USED = 3
    DENIED = 4
    FENCED = 5                # a newer life of its producer has begun: the offset is that life


cdef class RecorderCore:
    """front belongs to it from here on, and target (an object with `_mq_sink()`) is fed by it.
    `ask`, unless None, says whether a message may be stored, by the number of its peer and its
    topic (b"": the sink has but one). run() blocks until stop() or an error."""

    def __cinit__(self, SocketCore front, target, ask=None):
        capsule = target._mq_sink()
        self.sink = (<Sink*> PyCapsule_GetPointer(capsule, "mqcore.sink"))[0]
        if self.sink.ops.abi != SINK_ABI:
            raise PluginError(f"this sink was built for version {self.sink.ops.abi} of sinks, "
                              f"here it is {SINK_ABI}", hint="build it anew")
        if self.sink.ops.place == NULL or self.sink.ops.error == NULL:
            raise PluginError(f"{type(target).__name__} is no sink that stores")
        self.front = front
        self.target = target
        self.gate = None if ask is None else Gate(ask)
        front.check()
        if not front.s.flags & PAT_RECV:
            raise UsageError(f"a {front.plugin.name} socket receives nothing",
                             hint="take pull, sub, dish, bus, pair, rep or respondent")
        self.answers = front.s.ops.send_to != NULL and front.s.flags & PAT_EXCHANGE != 0
        if front.s.flags & PAT_EXCHANGE and not self.answers:
            raise UsageError(f"a {front.plugin.name} socket receives only what it asked for",
                             hint="take rep where requests come in")
        if front.open_watch() < 0:
            raise OSError("no descriptors left for the device")
        front.claim()

    def __dealloc__(self):
        vec_fini(&self.hand)

    # -- on the device's thread --------------------------------------------------------------------

    def run(self):
        """Move messages until stop(), the socket is closed, or the sink cannot go on: its errno."""
        cdef const PollerOps* ops = self.front.s.plane.poller
        cdef int failure = 0
        self.set = ops.open()
        if self.set == NULL:
            raise OSError("no descriptors left for the device")
        self.front.s.users.fetch_add(1)     # close() says so, then waits: the set stays until then
        if self.goes_on():
            if ops.add_set(self.set, self.front.s.set, self.front.s):
                failure = errno
            else:
                with nogil:
                    self.loop()
        ops.close(self.set)
        self.front.s.users.fetch_sub(1)
        if failure:
            raise OSError(failure, f"the device cannot watch its socket: {os.strerror(failure)}")
        return self.failure

    cdef bint goes_on(self) noexcept nogil:
        return not (self.stopping.load() or self.front.s.closing.load() or self.failure)

    cdef void loop(self) noexcept nogil:
        cdef uint32_t seen
        cdef bint moved
        take_lead(self.front.s)
        while self.goes_on():
            seen = self.front.s.change.load()
            self.harvest()
            moved = False
            if not self.paused.load():
                moved = self.exchange() if self.answers else self.move()
            if not moved:
                self.failure = self.sink.ops.error(self.sink.self)
                if self.goes_on():
                    self.sleep(seen)
        give_lead(self.front.s)

    cdef void harvest(self) noexcept nogil:
        cdef Ready[16] found
        cdef int n = watch_wait(self.front.s, found, 16, 0)
        if n > 0:
            sock_act(self.front.s, found, n)

    cdef bint fill(self) noexcept nogil:
        """A burst into the empty hand. False: there is nothing, or the sink is not ready."""
        cdef size_t count = 0, i
        cdef int64_t size = 0
        self.hand.n = self.at = 0           # all in it was taken
        if not self.sink.ops.ready(self.sink.self):
            return False
        sock_recv_many(self.front.s, &self.hand, RECORD_BURST, BURST_BYTES, &count)
        for i in range(self.hand.n):
            if not self.hand.at[i].flags & MSG_ENVELOPE:
                size += <int64_t> msg_size(&self.hand.at[i])
        self.messages.fetch_add(<int64_t> count)
        self.bytes_.fetch_add(size)
        if self.gate is not None and not self.answers:
            self.sift()
        return count != 0

    cdef bint may_pass(self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
        cdef const uint8_t* topic = <const uint8_t*> b""
        cdef size_t size = 0
        if self.sink.ops.topic != NULL:
            topic = self.sink.ops.topic(self.sink.self, parts, n, &size)
        if topic == NULL or size > SINK_TOPIC:
            return True       # it has no topic: the sink refuses it
        if self.gate.passes(peer, topic, size):
            return True
        self.denied.fetch_add(1)
        return False

    cdef void sift(self) noexcept nogil:
        """Take what may not be stored out of the hand."""
        cdef size_t at = 0, end, i, kept = 0
        while at < self.hand.n:
            end = end_of(&self.hand, at)
            if self.may_pass(self.hand.at[at].peer, &self.hand.at[at], end - at):
                for i in range(at, end):
                    self.hand.at[kept] = self.hand.at[i]
                    kept += 1
            else:
                for i in range(at, end):
                    msg_close(&self.hand.at[i])
            at = end
        self.hand.n = kept

    cdef bint move(self) noexcept nogil:
        cdef size_t before, done = 0
        cdef int rc
        if self.at == self.hand.n and not self.fill():
            return False
        before = self.at
        rc = self.sink.ops.take(self.sink.self, &self.hand, self.at, &done)
        self.at = done
        if rc == MQ_OK:
            self.hand.n = 0   # every handle is the sink's now
            self.at = 0
        elif rc == MQ_DROPPED:
            self.duplicates.fetch_add(1)
        elif rc != MQ_AGAIN and rc != MQ_FULL:
            self.at = end_of(&self.hand, done)
            for done in range(done, self.at):
                msg_close(&self.hand.at[done])
            self.refused.fetch_add(1)
        return self.at != before or rc == MQ_OK

    cdef bint exchange(self) noexcept nogil:
        """A burst of requests: stored, committed, answered."""
        cdef size_t n = 0, end, i
        cdef Place* place
        cdef int rc
        if not self.fill():
            return False
        while self.at < self.hand.n:
            end = end_of(&self.hand, self.at)
            place = &self.places[n]
            memset(place, 0, sizeof(Place))
            place.at = place.body = self.at
            while place.body < end and self.hand.at[place.body].flags & MSG_ENVELOPE:
                place.body += 1
            rc = MQ_OK
            if self.gate is not None and not self.may_pass(
                    self.hand.at[place.at].peer, self.hand.at + place.body, end - place.body):
                place.status = DENIED
            else:
                rc = self.sink.ops.place(self.sink.self, self.hand.at + place.body,
                                         end - place.body, &place.offset, &place.partition)
            if rc == MQ_FULL or rc == MQ_AGAIN:
                break
            if rc == MQ_DROPPED:
                self.duplicates.fetch_add(1)
            elif rc != MQ_OK:
                place.status = TOO_OLD if rc == MQ_GONE else USED if rc == MQ_STATE \
                    else FENCED if rc == MQ_CLOSED else REFUSED
                self.refused.fetch_add(1)
            self.at = end
            n += 1
        self.failure = self.sink.ops.commit(self.sink.self)
        if self.failure == 0 and self.at < self.hand.n:
            self.failure = self.sink.ops.error(self.sink.self) or EIO
        if self.failure == 0:
            for i in range(n):
                self.answer(&self.places[i])
            self.hand.n = self.at = 0
        return self.failure == 0

    cdef void answer(self, Place* place) noexcept nogil:
        """The envelope that the request came in, and the answer where its body was."""
        cdef uint8_t[ANSWER] text
        cdef Msg* reply = &self.hand.at[place.at]
        cdef Msg* body = &self.hand.at[place.body]
        cdef uint32_t peer = reply.peer
        cdef size_t i, n = place.body - place.at + 1
        cdef size_t end = place.body + 1
        if place.status:                    # it is still there
            end = end_of(&self.hand, place.body)
            for i in range(place.body, end):
                msg_close(&self.hand.at[i])
            if place.status != FENCED:
                place.offset = -1
        memcpy(text, &place.status, 4)
        memcpy(text + 4, &place.partition, 4)
        memcpy(text + 8, &place.offset, 8)
        msg_init_inline(body, text, ANSWER)
        self.acknowledged.fetch_add(place.status == 0)
        if sock_send_to(self.front.s, peer, reply, n) != MQ_OK:
            self.acknowledged.fetch_sub(place.status == 0)
            for i in range(n):              # a requester that has disconnected is counted
                msg_close(&reply[i])

    cdef void sleep(self, uint32_t seen) noexcept nogil:
        """Until the socket changes or one of its descriptors does."""
        cdef Sock* s = self.front.s
        cdef Ready[2] found
        s.lead_asleep.exchange(1)
        if s.change.load() == seen and self.goes_on():
            s.plane.poller.wait(self.set, found, 2, CHECK_NS, NULL)
        s.lead_asleep.exchange(0)

    # -- any thread --------------------------------------------------------------------------------

    def stop(self):
        self.stopping.store(1)
        sock_changed(self.front.s)

    def set_paused(self, bint on):
        self.paused.store(on)
        sock_changed(self.front.s)

    def finish(self):
        """After run(): give the sink what is in hand, if it takes it. How many messages it did not;
        requests are left to those who asked, who were not answered."""
        cdef size_t left = 0, i
        if not self.answers:
            with nogil:
                while self.at < self.hand.n and self.move():
                    pass
        for i in range(self.at, self.hand.n):
            left += not self.hand.at[i].flags & MSG_MORE
        for i in range(0 if self.answers else self.at, self.hand.n):
            msg_close(&self.hand.at[i])
        self.hand.n = self.at = 0
        return left

    def release(self):
        self.front.unclaim()

    def counters(self):
        """(messages, bytes, refused, duplicates, acknowledged, denied)"""
        return (self.messages.load(), self.bytes_.load(), self.refused.load(),
                self.duplicates.load(), self.acknowledged.load(), self.denied.load())


cdef size_t end_of(MsgVec* v, size_t at) noexcept nogil:
    """Where the message that begins at `at` ends."""
    while v.at[at].flags & MSG_MORE and at + 1 < v.n:
        at += 1
    return at + 1
