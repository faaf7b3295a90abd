"""Answers what pages ask. Threads share it: only what waits for other programs (an explanation,
a message to send) runs without its lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from mqcore.base.described import described
from mqcore.base.native import threading
from mqcore.console import requests
from mqcore.console.control import Control
from mqcore.console.looks import Look, Looks, totals
from mqcore.console.requests import Refused
from mqcore.console.stores import Stores
from mqcore.console.tables import clean, cut
from mqcore.errors import Error
from mqcore.monitor import Client
from mqcore.monitor.drawing import caption, columns_of
from mqcore.monitor.protocol import ComponentFacts, Process
from mqcore.monitor.rates import PeerRow, SocketRow
from mqcore.monitor.topology import Edge, Node, Topology

MOST_EDGES = 60         # connections in the map
MOST_NODES = 60         # sockets in the map
FIRST = 1.5             # seconds for which a request waits for the first look
SOCKET_SORTS = ("rate", "program", "pattern", "endpoint", "peers", "out", "in", "bytes", "queued",
                "drops")
PEER_SORTS = ("queued", "program", "address", "out", "in", "bytes", "drops", "rtt")
COMPONENT_SORTS = ("kind", "name", "program", "state")
COUNTERS = 12           # of a component, in a row
MOST_REASONS = 50       # of a socket's drops
EVENT_SORTS = ("number", "kind", "address", "endpoint")
_log = logging.getLogger("mqcore.console")


class Views:
    """`counts`: requests answered, refused, malformed and failed."""

    def __init__(self, looks: Looks, stores: Stores, control: Control | None,
                 options: dict[str, Any]) -> None:
        self._looks = looks
        self._stores = stores
        self._control = control
        self._options = options
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(("answered", "refused", "malformed", "failed"), 0)
        self._table: dict[type, Callable[[Any], dict[str, Any]]] = {
            requests.Totals: self._totals, requests.Sockets: self._sockets,
            requests.Peers: self._peers, requests.One: self._one, requests.Map: self._map,
            requests.Journals: stores.journals, requests.Spark: stores.spark,
            requests.Events: self._events, requests.Components: self._components}

    def answer(self, data: bytes) -> bytes:
        """The answer to a request, encoded. Never raises for what a page has sent."""
        try:
            asked = requests.decode(data)
            found = self._answer(asked)
            self.counts["answered"] += 1
        except Refused as error:
            self.counts[error.code] += 1
            return requests.encode(requests.failure(error.code, error.text))
        except Exception as error:      # a look may change under a request; pages must survive it
            self.counts["failed"] += 1
            if self.counts["failed"] <= 10:
                _log.exception("a request of a page failed")
            return requests.encode(requests.failure("failed", described(error)))
        return requests.encode({"op": type(asked).__struct_config__.tag, **found})

    def _answer(self, asked: Any) -> dict[str, Any]:
        self._looks.workers["sockets"].want()
        self._looks.workers["sockets"].looked(FIRST)
        if isinstance(asked, requests.Explain):
            return self._explain(asked)
        if type(asked) in self._table:
            with self._lock:
                return {**self._table[type(asked)](asked), "totals": self._now()}
        if self._control is None:
            raise Refused("this console is read-only", hint="start it with --control")
        return self._control.do(asked, self._looks.sockets)

    def _now(self) -> dict[str, Any]:
        look = self._looks.sockets
        return {**totals(look), "clock": look.clock, "took": round(look.took, 4),
                "failure": look.failure, "control": self._control is not None,
                "journals": self._stores.has_journals, "spark": self._stores.has_spark,
                "age": round(time.monotonic() - look.clock, 3) if look.clock else None}

    # -- what a page shows -------------------------------------------------------------------------

    def _totals(self, _asked: requests.Totals) -> dict[str, Any]:
        return {"history": list(self._looks.history)}

    def _sockets(self, asked: requests.Sockets) -> dict[str, Any]:
        rows = [socket_row(row) for row in self._looks.sockets.rows]
        return cut(rows, asked, SOCKET_SORTS, lambda row: (
            f"{row['program']} {row['pid']} {row['name']} {row['pattern']} {row['endpoint']}"))

    def _with_peers(self) -> Look:
        self._looks.workers["peers"].want()
        self._looks.workers["peers"].looked(FIRST)
        return self._looks.peers

    def _peers(self, asked: requests.Peers) -> dict[str, Any]:
        look = self._with_peers()
        rows = [peer_row(row, peer) for row in look.rows for peer in row.peers
                if not asked.context or (row.context, row.socket) == (asked.context, asked.socket)]
        return {**cut(rows, asked, PEER_SORTS, lambda row: (
            f"{row['program']} {row['pid']} {row['pattern']} {row['address']} {row['user']}")),
            "left_out": look.left_out, "at": look.at}

    def _one(self, asked: requests.One) -> dict[str, Any]:
        found = self._looks.sockets.facts(asked.context, asked.socket)
        row = next((row for row in self._looks.sockets.rows
                    if (row.context, row.socket) == (asked.context, asked.socket)), None)
        if found is None or row is None:
            raise Refused("this socket is closed, or its program does not answer")
        _, facts = found
        return {"row": socket_row(row), "send_hwm": facts.send_hwm, "recv_hwm": facts.recv_hwm,
                "sent": facts.sent, "received": facts.received, "unmatched": facts.unmatched,
                "reconnects": facts.reconnects, "failed_handshakes": facts.failed_handshakes,
                "broken_peers": facts.broken_peers, "dropped": reasons(facts.lost),
                "endpoints": [{"url": clean(one.url), "kind": clean(one.kind),
                               "state": clean(one.state), "error": clean(one.error)}
                              for one in facts.endpoints[:50]],
                "more_endpoints": max(0, len(facts.endpoints) - 50)}

    def _explain(self, asked: requests.Explain) -> dict[str, Any]:
        look = self._looks.sockets
        url = look.urls.get(asked.context, "")
        if not url or look.facts(asked.context, asked.socket) is None:
            raise Refused("this socket is closed, or its program does not answer")
        why = "its program does not answer"
        try:
            with Client(url, **self._options) as client:
                if any(one.context.id == asked.context for one in client.welcomes()):
                    for text in client.explain(asked.socket):
                        return {"text": clean_lines(text)}
                    why = client.failure or "this socket is closed"
        except Error as error:
            why = error.text
        raise Refused(clean(why))

    def _events(self, asked: requests.Events) -> dict[str, Any]:
        self._looks.workers["events"].want()
        rows = list(self._looks.events)
        return {**cut(rows, asked, EVENT_SORTS, lambda row: " ".join(map(str, row.values()))),
                "seen": self._looks.events_seen, "lost": self._looks.events_lost}

    def _components(self, asked: requests.Components) -> dict[str, Any]:
        self._looks.workers["components"].want()
        self._looks.workers["components"].looked(FIRST)
        answers = self._looks.components
        rows = [component_row(answer.process, one) for answer in answers
                for one in answer.components]
        return {**cut(rows, asked, COMPONENT_SORTS, lambda row: (
            f"{row['program']} {row['pid']} {row['kind']} {row['name']} {row['state']}")),
            "left_out": sum(answer.left_out for answer in answers)}

    def _map(self, _asked: requests.Map) -> dict[str, Any]:
        look = self._with_peers()
        return {**map_of(self._looks.topology()), "at": look.at}


def clean_lines(text: str) -> str:
    return "\n".join(clean(line, 1000) for line in text.splitlines()[:200])


def reasons(dropped: dict[str, int], most: int = MOST_REASONS) -> dict[str, int]:
    """Drops by reason, which a program has named."""
    return {clean(name): count for name, count in list(dropped.items())[:most]}


def socket_row(row: SocketRow) -> dict[str, Any]:
    return {
        "context": row.context, "name": clean(row.context_name), "program": clean(row.program),
        "pid": row.pid, "socket": row.socket, "pattern": clean(row.pattern),
        "endpoint": clean(row.endpoints[0]) if row.endpoints else "",
        "endpoints": len(row.endpoints), "errors": [clean(text) for text in row.errors[:3]],
        "peers": row.peers_connected, "out": row.out_rate, "in": row.in_rate,
        "rate": row.out_rate + row.in_rate, "bytes": row.bytes_out_rate + row.bytes_in_rate,
        "queued": row.queued_out + row.queued_in, "drops": row.drops, "drop_rate": row.drop_rate,
        "dropped": reasons(row.dropped, 8)}


def peer_row(row: SocketRow, peer: PeerRow) -> dict[str, Any]:
    return {
        "context": row.context, "program": clean(row.program), "pid": row.pid,
        "socket": row.socket, "pattern": clean(row.pattern), "id": peer.id,
        "address": clean(peer.address), "their_pattern": clean(peer.pattern),
        "their_pid": peer.pid, "user": clean(peer.user or ""), "wire": clean(peer.wire),
        "out": peer.out_rate, "in": peer.in_rate, "bytes": peer.bytes_out_rate + peer.bytes_in_rate,
        "queued": peer.queued_out + peer.queued_in, "queued_out": peer.queued_out,
        "queued_in": peer.queued_in, "drops": sum(peer.dropped.values()),
        "drop_rate": peer.drop_rate, "rtt": peer.rtt}


def component_row(process: Process, one: ComponentFacts) -> dict[str, Any]:
    counts = dict(list(one.counts.items())[:COUNTERS])
    return {"program": clean(process.program), "pid": process.pid, "kind": clean(one.kind),
            "name": clean(one.name), "state": clean(one.state), "error": clean(one.error),
            "counts": {clean(name): count for name, count in counts.items()}}


def map_of(graph: Topology) -> dict[str, Any]:
    """The busiest connections, the sockets at their ends, and how many are not shown."""
    edges = sorted(graph.edges, key=lambda edge: -(edge.messages + edge.back))
    keys: dict[Any, Node] = {}
    shown: list[Edge] = []
    for edge in edges:
        more = {edge.first, edge.second} - keys.keys()
        if len(shown) < MOST_EDGES and len(keys) + len(more) <= MOST_NODES:
            shown.append(edge)
            keys |= {key: graph.nodes[key] for key in more}
    for key, node in graph.nodes.items():
        if len(keys) < MOST_NODES and not node.outside:
            keys.setdefault(key, node)
    part = Topology(keys, shown)
    numbers = {key: number for number, key in enumerate(keys)}
    columns = [[{"group": clean(group), "nodes": [
        {"id": numbers[node.key], "title": clean(
            node.pattern if node.outside else f"{node.pattern} {node.key[1]}"),
         "label": clean(node.label), "outside": node.outside,
         "context": node.key[0], "socket": node.key[1] if not node.outside else 0}
        for node in nodes]} for group, nodes in groups] for groups in columns_of(part)]
    return {"columns": columns, "edges": [
        {"from": numbers[edge.first], "to": numbers[edge.second], "text": caption(edge),
         "messages": edge.messages + edge.back, "both": not edge.one_way, "drops": edge.dropped,
         "queued": edge.queued} for edge in shown],
        "more_edges": len(graph.edges) - len(shown), "more_sockets": len(graph.nodes) - len(keys),
        "left_out": graph.left_out}
