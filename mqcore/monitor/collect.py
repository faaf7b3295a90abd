"""Collects the state of a context: one Snapshot. It reads what Socket.stats() and peers() read.

Runs on the agent's thread. Each socket's counters are one consistent picture, copied under that
socket's lock; the sockets are looked at one after the other.
"""

from __future__ import annotations

import os
import platform
import time
from functools import cache
from importlib.metadata import version
from typing import Any

from mqcore import trace
from mqcore.api.explain import explain
from mqcore.api.histograms import KINDS
from mqcore.base.native import socket as system
from mqcore.errors import Error
from mqcore.monitor.place import program
from mqcore.monitor.protocol import (
    VERSION,
    ContextFacts,
    Counters,
    EndpointFacts,
    LatencyFacts,
    PeerFacts,
    Process,
    Snapshot,
    SocketFacts,
    SpanFacts,
    Spans,
)
from mqcore.spi.drop import DROP_REASONS

REASONS = tuple(name for name, _ in DROP_REASONS)
NOTHING: dict[str, int] = {}
LONGEST = 512       # characters of a text that a peer or an error has chosen


def clean(text: str, most: int = LONGEST) -> str:
    """Text that any decoder takes: paths and names may have bytes that are not UTF-8."""
    if len(text) > most:
        text = text[:most - 3] + "..."
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@cache
def _constant() -> dict[str, str]:
    return {"host": clean(system.gethostname()), "python": platform.python_version(),
            "mqcore": version("mqcore")}


def process_facts() -> Process:
    return Process(pid=os.getpid(), program=clean(program()), uid=os.getuid(),
                   started=started(), **_constant())


@cache
def _boot(pid: int) -> float:
    """When this process started, by the kernel; else now."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return round(time.time() - age, 2)
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()


def started() -> float:
    return _boot(os.getpid())


def context_facts(context_id: str, name: str, hub: Any) -> ContextFacts:
    plane = hub._plane
    return ContextFacts(id=context_id, name=name, io_threads=hub.io_threads,
                        sockets=len(hub.sockets),
                        handles=plane.counters() if plane is not None else {})


def snapshot(hub: Any, context_id: str, name: str, events: str, *, peers: bool,
             most: int, only: int = 0) -> Snapshot:
    """only: the number of the one socket that is wanted; 0: all."""
    shot = Snapshot(v=VERSION, at=time.time(), clock=time.monotonic(), process=process_facts(),
                    context=context_facts(context_id, name, hub), events=events)
    for links, core in open_sockets(hub):
        if only and links.number != only:
            continue
        try:
            facts, left_out = socket_facts(links, core, most if peers else 0)
        except Error:   # closed meanwhile
            continue
        most -= len(facts.peers)
        shot.left_out += left_out if peers else 0
        shot.sockets.append(facts)
    return shot


def open_sockets(hub: Any) -> list[tuple[Any, Any]]:
    """(control plane, socket) of each socket that is wholly made and not closed."""
    with hub.lock:
        all_links = list(hub.sockets.values())
    found = [(links, links.core) for links in all_links]
    return [(links, core) for links, core in found
            if core is not None and core._links is not None and not core.closed]


def explanation(hub: Any, number: int) -> str:
    for links, core in open_sockets(hub):
        if links.number == number:
            return str(explain(core))
    return ""


def socket_facts(links: Any, core: Any, most: int) -> tuple[SocketFacts, int]:
    """The facts of one socket with at most so many peers, and how many peers were left out."""
    links.hub.pump()
    accounts = core._accounts()
    live = accounts["live"]
    with links.hub.lock:
        known = dict(links.peers) if most > 0 else {}
        joined = dict(links.joined) if most > 0 else {}
    facts = SocketFacts(
        number=links.number, pattern=links.plugin.name,
        send_hwm=links.options["send_hwm"], recv_hwm=links.options["recv_hwm"],
        sent=accounts["sent"], received=accounts["received"], waiting=accounts["waiting"],
        unmatched=accounts["unmatched"], resent=accounts["resent"], reconnects=links.reconnects,
        failed_handshakes=links.failed_handshakes, broken_peers=links.broken_peers,
        dropped=named(accounts["dropped"]), gone=Counters(**counted(accounts["total"])),
        endpoints=endpoint_facts(core), connected=len(live), latencies=latency_facts(core))
    total(facts, live)
    for number, counts in live[:max(0, most)]:
        facts.peers.append(peer_facts(number, counts, known.get(number), joined.get(number)))
    return facts, len(live) - len(facts.peers)


def latency_facts(core: Any) -> dict[str, LatencyFacts]:
    return {kind: LatencyFacts(ns, counts)
            for kind, (ns, counts) in zip(KINDS, core._latencies() or (), strict=False) if counts}


def named(counts: list[int]) -> dict[str, int]:
    if not any(counts):
        return NOTHING
    return {REASONS[i]: n for i, n in enumerate(counts) if n}


def total(facts: SocketFacts, live: list[tuple[int, dict[str, Any]]]) -> None:
    """The sums over all peers, which are there even where the peers are left out. `bytes_` and
    `lost` (drops by reason) include those that have departed and the socket's own."""
    lost = dict(facts.dropped)
    gone = facts.gone
    bytes_out, bytes_in = gone.bytes_out, gone.bytes_in
    queued_out, queued_in = 0, gone.queued_in
    for _, counts in live:
        bytes_out += counts["bytes_out"]
        bytes_in += counts["bytes_in"]
        queued_out += counts["offered"] - counts["written"]
        queued_in += counts["read"] - counts["delivered"]
        if any(counts["out_dropped"]):
            queued_out -= sum(counts["out_dropped"])
            add(lost, named(counts["out_dropped"]))
        if any(counts["in_dropped"]):
            queued_in -= sum(counts["in_dropped"])
            add(lost, named(counts["in_dropped"]))
    facts.bytes_out, facts.bytes_in = bytes_out, bytes_in
    facts.queued_out, facts.queued_in = queued_out, queued_in
    add(lost, gone.dropped_out)
    add(lost, gone.dropped_in)
    facts.lost = lost


def add(into: dict[str, int], more: dict[str, int]) -> None:
    for reason, count in more.items():
        into[reason] = into.get(reason, 0) + count


def counted(counts: dict[str, Any]) -> dict[str, Any]:
    """A peer's counters in the names of PeerStats."""
    out, back = named(counts["out_dropped"]), named(counts["in_dropped"])
    return {
        "offered": counts["offered"], "written": counts["written"],
        "queued_out": counts["offered"] - counts["written"] - (sum(out.values()) if out else 0),
        "read": counts["read"], "delivered": counts["delivered"],
        "queued_in": counts["read"] - counts["delivered"] - (sum(back.values()) if back else 0),
        "bytes_out": counts["bytes_out"], "bytes_in": counts["bytes_in"],
        "bytes_unread": counts["bytes_unread"], "bytes_unacked": counts["bytes_unacked"],
        "writes": counts["writes"], "reads": counts["reads"], "bounced": counts["bounced"],
        "lost": counts["lost"],
        "dropped_out": out, "dropped_in": back,
    }


def peer_facts(number: int, counts: dict[str, Any], peer: Any, joined: Any) -> PeerFacts:
    facts = PeerFacts(id=number, since=round(counts["since"], 3), rtt=counts["rtt"],
                      socket=joined[1].number if joined is not None else None, **counted(counts))
    if peer is not None:
        facts.address, facts.local = clean(peer.address), clean(peer.local)
        facts.endpoint, facts.wire, facts.pattern = clean(peer.endpoint), peer.wire, peer.pattern
        facts.pid, facts.user = peer.pid, clean(peer.user) if peer.user is not None else None
        facts.routing_id = clean(bytes(peer.routing_id).decode("utf-8", "backslashreplace"))
    return facts


def endpoint_facts(core: Any) -> list[EndpointFacts]:
    found = []
    for endpoint in core.endpoints:
        for one in (endpoint, *endpoint.members):
            error = one.error
            found.append(EndpointFacts(
                url=clean(one.url), given=clean(one.given), kind=one.kind, state=one.state,
                error=clean(error.text) if error is not None else "",
                of=clean(one.of.url) if one.of is not None else ""))
    return found




def spans(trace_id: str) -> Spans:
    """What this process keeps of a trace."""
    return Spans(v=VERSION, process=process_facts(), trace=trace_id,
                 overwritten=trace.stats()["overwritten"], spans=[
                     SpanFacts(span=kept.span_id, parent=kept.parent_id, name=clean(kept.name),
                               kind=kept.kind, start=kept.start, duration=kept.duration,
                               error=clean(kept.error)) for kept in trace.spans(trace_id)])
