"""A cluster in virtual time: the real membership code, and a network with delay, loss, partitions,
stopped and killed nodes. Everything follows from the seed.

    net = Network(seed=1, loss=0.01)
    nodes = [net.add() for _ in range(10)]
    net.run(5)
    assert net.converged()
"""

import heapq
from collections import Counter
from random import Random

from mqcore.cluster.membership import Config, Membership, Record, State

KEY = bytes(range(32))
EPOCH = 1_700_000_000.0


class Node:
    def __init__(self, net, number, seeds, config, zone, keys):
        self.net = net
        self.number = number
        self.address = (f"n{number}", 7400)
        self.side = 0               # of the partition
        self.alive = True
        self.stopped_until = 0.0
        self.tick_at = None
        self.events = []
        self.refused_syncs = 0
        record = Record(number.to_bytes(16, "big"), 0, *self.address, f"tcp://n{number}:7400", zone,
                        b"meta of %d" % number)
        self.id = record.id
        # each node's clocks are its own: steady ones from anywhere, walls some seconds apart
        skew = net.chance.uniform(-5, 5)
        self.membership = Membership(
            record, keys, seeds=seeds, config=config, rng=Random(net.chance.getrandbits(64)),
            clock=lambda: net.now, wall=lambda: EPOCH + skew + net.now)


class Network:
    def __init__(self, seed=0, delay=(0.0002, 0.002), loss=0.0, config=None, keep=True):
        self.chance = Random(seed)
        self.now = 0.0
        self.delay = delay
        self.loss = loss
        self.config = config or Config()
        self.nodes = []
        self.by_address = {}
        self.counts = Counter()
        self.most_sent = 0
        self._heap = []
        self._order = 0
        self.keep = keep            # every event; else their number by kind, in `counts`
        self.taps = []              # called with (source, address, data) of each datagram

    # -- what a test does --------------------------------------------------------------------------

    def add(self, seeds=None, zone="", keys=(KEY,), start=None):
        """A node, which starts now and looks for the first node."""
        if seeds is None:
            seeds = [self.nodes[0].address] if self.nodes else []
        node = Node(self, len(self.nodes) + 1, seeds, self.config, zone, list(keys))
        self.nodes.append(node)
        self.by_address[node.address] = node
        self._schedule(start or self.now, node)
        return node

    def many(self, count, within=0.1):
        """So many nodes, which start within that time."""
        for _ in range(count):
            self.add(start=self.now + self.chance.uniform(0, within))
        return self.nodes[-count:]

    def kill(self, node):
        node.alive = False

    def stop(self, node, seconds):
        """The process gets no time; what comes in waits for it."""
        node.stopped_until = self.now + seconds

    def partition(self, *sides):
        for number, side in enumerate(sides):
            for node in side:
                node.side = number

    def heal(self):
        for node in self.nodes:
            node.side = 0

    def run(self, seconds, until=None, every=0.1):
        """Lets time pass. Returns the seconds until `until()` was true, None if it never was."""
        start, end = self.now, self.now + seconds
        check = self.now + every
        while self._heap and self._heap[0][0] <= end:
            when = self._heap[0][0]
            if until is not None and when >= check:
                self.now = check
                if until():
                    return self.now - start
                check += every
                continue
            _, _, node, what, payload = heapq.heappop(self._heap)
            self.now = when
            self._step(node, what, payload)
        self.now = end
        return self.now - start if until is not None and until() else None

    def running(self):
        return [node for node in self.nodes if node.alive]

    def converged(self, nodes=None):
        """Whether all these nodes, by default all that run, see exactly each other, alike."""
        nodes = self.running() if nodes is None else nodes
        if any(len(node.membership.members()) != len(nodes) for node in nodes):
            return False
        want = {node.id: (node.membership.me.incarnation, State.ALIVE) for node in nodes}
        return all(node.membership.view() == want for node in nodes)

    def events(self, kind):
        """(observer, subject) of all events of a kind that were seen."""
        return [(node.number, int.from_bytes(event.record.id, "big"))
                for node in self.nodes for event in node.events if event.kind == kind]

    def rate(self, since):
        """Packets a node and second since that count was taken."""
        packets, when = since
        return (self.counts["packets"] - packets) / len(self.nodes) / (self.now - when)

    def mark(self):
        return self.counts["packets"], self.now

    # -- the world ---------------------------------------------------------------------------------

    def _push(self, when, node, what, payload):
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, node, what, payload))

    def _schedule(self, when, node):
        if node.tick_at is None or when < node.tick_at:
            node.tick_at = when
            self._push(when, node, "tick", when)

    def _step(self, node, what, payload):
        if not node.alive:
            return
        if self.now < node.stopped_until:
            if what == "tick":
                if payload != node.tick_at:
                    return
                payload = node.tick_at = node.stopped_until
            self._push(node.stopped_until, node, what, payload)
            return
        if what == "tick":
            if payload != node.tick_at:
                return              # another one is due earlier
            node.tick_at = None
            node.membership.tick()
        elif what == "datagram":
            node.membership.on_datagram(*payload)
        else:
            self._on_link(node, *payload)
        self._collect(node)

    def _collect(self, node):
        membership = node.membership
        for address, data in membership.datagrams():
            assert len(data) <= node.net.config.datagram
            self.counts["packets"] += 1
            self.counts["bytes"] += len(data)
            for tap in self.taps:
                tap(node, address, data)
            self._deliver(node, address, data)
        events = membership.events()
        if self.keep:
            node.events += events
        else:
            self.counts.update(event.kind for event in events)
        for sync in membership.syncs():
            peer = self.by_address.get(sync.address)
            if peer is not None and self._reachable(node, peer):
                self._link(node, peer, membership.begin_sync())
                self.counts["syncs"] += 1
        membership.link_probes()
        self._schedule(max(self.now, membership.next_tick()), node)

    def _reachable(self, node, peer):
        return peer.alive and node.side == peer.side

    def _deliver(self, node, address, data):
        peer = self.by_address.get(address)
        if peer is None or not self._reachable(node, peer) or self.chance.random() < self.loss:
            self.counts["lost"] += 1
            return
        self._push(self.now + self.chance.uniform(*self.delay), peer, "datagram",
                   (node.address, data))

    def _link(self, node, peer, data):
        self.counts["sync_bytes"] += len(data)
        self._push(self.now + 2 * self.chance.uniform(*self.delay), peer, "link", (node, data))

    def _on_link(self, node, peer, data):
        if self._reachable(node, peer):
            answer = node.membership.on_sync(data)
            if answer is not None:
                self._link(node, peer, answer)
