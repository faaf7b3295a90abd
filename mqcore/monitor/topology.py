"""Who is connected to whom: the snapshots of several processes as one graph.

Both ends of a connection know it: an inproc peer by the number of the other socket, a TCP peer by
its two addresses, an ipc or shm peer by path and process id. Where several have the same path
and processes, they are matched in the order in which they came about. A peer whose other end is not
monitored becomes a node of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mqcore.monitor.protocol import PeerFacts, Snapshot, SocketFacts

SENDERS = {"push", "pub", "xpub", "scatter", "radio", "req", "surveyor", "client"}
RECEIVERS = {"pull", "sub", "xsub", "gather", "dish", "rep", "respondent", "server"}
ONE_WAY = {"push", "pub", "xpub", "scatter", "radio", "pull", "sub", "xsub", "gather", "dish"}

NodeKey = tuple[str, int | str]     # context and socket; "" and an address


@dataclass(frozen=True)
class Node:
    """A socket, or (`outside`) a peer that is not monitored. `group` is its process."""

    key: NodeKey
    group: str
    pattern: str
    label: str
    outside: bool = False


@dataclass
class Edge:
    """Connections between two sockets; the first one sends, where that is known. `messages` were
    written from the first to the second, `back` the other way, over connections that are open."""

    first: NodeKey
    second: NodeKey
    transport: str
    connections: int = 0
    messages: int = 0
    back: int = 0
    dropped: int = 0
    queued: int = 0
    one_way: bool = False


@dataclass
class Topology:
    """`left_out`: peers that the snapshots did not list, so that edges are missing."""

    nodes: dict[NodeKey, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    left_out: int = 0

    @property
    def groups(self) -> dict[str, list[Node]]:
        """The nodes by process."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            found.setdefault(node.group, []).append(node)
        return found


@dataclass(frozen=True)
class _End:
    """One end of a connection."""

    key: NodeKey
    shot: Snapshot
    facts: SocketFacts
    peer: PeerFacts

    @property
    def transport(self) -> str:
        return (self.peer.endpoint or self.peer.address).partition("://")[0]

    def name(self, mine: bool) -> tuple[object, ...]:
        """The connection as this end (mine) or as its other end would name itself."""
        peer, shot = self.peer, self.shot
        scheme = peer.address.partition("://")[0]
        if peer.socket is not None:
            number = self.facts.number if mine else peer.socket
            other = peer.socket if mine else self.facts.number
            return "inproc", shot.context.id, peer.address, number, other
        if scheme in ("ipc", "shm"):
            pids = (shot.process.pid, peer.pid) if mine else (peer.pid, shot.process.pid)
            return scheme, shot.process.host, peer.address, *pids, mine_listens(self) == mine
        ends = (peer.local, peer.address) if mine else (peer.address, peer.local)
        return "", *ends


def mine_listens(end: _End) -> bool:
    """Whether this end is the listening one."""
    urls = {one.url for one in end.facts.endpoints if one.kind == "bind"}
    return end.peer.endpoint in urls


def topology(shots: Iterable[Snapshot]) -> Topology:
    """The graph of all sockets in these snapshots, taken with peers."""
    graph = Topology()
    waiting: dict[tuple[object, ...], list[_End]] = {}
    edges: dict[tuple[NodeKey, NodeKey, str], Edge] = {}
    ends: list[_End] = []
    for shot in shots:
        graph.left_out += shot.left_out
        for facts in shot.sockets:
            node = socket_node(shot, facts)
            graph.nodes[node.key] = node
            ends += (_End(node.key, shot, facts, peer) for peer in facts.peers)
    for end in sorted(ends, key=lambda end: end.peer.since):
        other = waiting.get(end.name(mine=False))
        if other:
            join(graph, edges, other.pop(0), end)
        else:
            waiting.setdefault(end.name(mine=True), []).append(end)
    for left in waiting.values():
        for end in left:
            join(graph, edges, end, None)
    graph.edges = sorted(edges.values(), key=lambda edge: (str(edge.first), str(edge.second)))
    return graph


def socket_node(shot: Snapshot, facts: SocketFacts) -> Node:
    urls = [one.url for one in facts.endpoints if one.kind == "bind"] \
        or [one.url for one in facts.endpoints]
    name = f" ({shot.context.name})" if shot.context.name else ""
    return Node(key=(shot.context.id, facts.number), pattern=facts.pattern,
                group=f"{shot.process.program} {shot.process.pid}{name}",
                label=", ".join(urls[:2]) + (" ..." if len(urls) > 2 else ""))


def join(graph: Topology, edges: dict[tuple[NodeKey, NodeKey, str], Edge], end: _End,
         other: _End | None) -> None:
    """Add one connection; other is None if its other end is not monitored."""
    if other is None:
        pid = f" (process {end.peer.pid})" if end.peer.pid is not None else ""
        key: NodeKey = ("", f"{end.peer.address} {end.peer.pid} {end.peer.pattern}")
        graph.nodes.setdefault(key, Node(
            key=key, group="not monitored", pattern=end.peer.pattern or "peer",
            label=end.peer.address + pid, outside=True))
    else:
        key = other.key
    patterns = end.facts.pattern, end.peer.pattern
    turned = patterns[0] in RECEIVERS or (patterns[1] in SENDERS and patterns[0] not in SENDERS)
    names = (key, end.key) if turned else (end.key, key)
    edge = edges.setdefault((*names, end.transport), Edge(*names, end.transport))
    sent, got = end.peer.written, end.peer.read
    if other is not None:       # what one end wrote may still be on its way to the other
        sent, got = max(sent, other.peer.read), max(got, other.peer.written)
    edge.connections += 1
    edge.messages += got if turned else sent
    edge.back += sent if turned else got
    edge.one_way = bool(ONE_WAY & set(patterns))
    for one in (end, other):
        if one is not None:
            edge.dropped += sum(one.peer.dropped_out.values()) + sum(one.peer.dropped_in.values())
            edge.queued += one.peer.queued_out + one.peer.queued_in
