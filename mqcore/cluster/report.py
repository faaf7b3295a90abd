"""What a node says of itself: counters, and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqcore.base.components import State, numbers
from mqcore.cluster.checks import readable

if TYPE_CHECKING:
    from mqcore.cluster.node import Core


def stats(node: Core) -> dict[str, Any]:
    links = list(node.links.by_rid.values())
    return {
        "requests": {**node.requests.counts, "pending": node.requests.pending,
                     "retries_refused": node.budget.refused},
        "services": {name: {**service.requests.accounts(),
                            "broadcasts": service.broadcasts.accounts(),
                            "tunnels": len(service.tunnels),
                            "tunnels_refused": service.refused_tunnels}
                     for name, service in node.services.items()},
        "broadcasts": {"sent": node.surveys.broadcasts, "addressed": node.surveys.addressed,
                       "unsent": node.surveys.unsent, "late_answers": node.surveys.late,
                       "dropped_answers": node.surveys.dropped},
        "topics": node.topics.accounts(),
        "feeds": [{"patterns": feed.patterns, "received": feed.received,
                   "delivered": feed.delivered, "waiting": feed.waiting,
                   "dropped": feed.dropped} for feed in node.topics.feeds],
        "tunnels": {"open": len(node.tunnels.open), "opened": node.tunnels.opened,
                    "accepted": node.tunnels.accepted, "refused": node.tunnels.refused,
                    "resumed": node.tunnels.resumed,
                    "without_link": sum(map(len, node.tunnels.away.values())),
                    "stray": node.tunnels.stray},
        "links": {"open": sum(link.greeted and link.alive for link in links),
                  "bytes_out": sum(link.session.bytes_out for link in links),
                  "bytes_in": sum(link.session.bytes_in for link in links),
                  "frames_out": sum(link.session.frames_out for link in links),
                  "frames_in": sum(link.session.frames_in for link in links)},
        "gateways": [gateway.stats() for gateway in node.gateways],
        "dropped": _dropped(node),
        "counts": dict(node.counts),
        "membership": {**node.pulse.membership.stats(), "unsent": node.pulse.failed,
                       "unresolved": node.pulse.names.dropped if node.pulse.names else 0},
        "beacon": None if node.sources.beacon is None else node.sources.beacon.stats(),
        "records_refused": node.directory.refused,
        "rejections_untold": node.rejections.untold,
    }


def _dropped(node: Core) -> dict[str, int]:
    """With what was queued for connections that broke."""
    links = node.links
    unwritten = links.not_written()
    return {**links.dropped, **({"unwritten": unwritten} if unwritten else {})}


def states(node: Core) -> list[State]:
    """What a monitor shows."""
    if node.closed:
        return []
    rejected = next((error.text for error in list(node.rejections.values())), "")
    counts = {"members": len(node.directory.members) + 1, **numbers(stats(node))}
    return [State("cluster node", f"{node.id[:8]} at {node.url}",
                  "draining" if node.draining else "running", rejected, counts)]


def explain(node: Core) -> str:
    lines = [f"node {node.id[:8]} at {node.url}, key {node.key.id}"
             + (f", zone {node.zone}" if node.zone else "")
             + (", closed" if node.closed else ", draining" if node.draining else "")]
    others = list(node.directory.members.values())
    lines.append(f"{len(others)} other member(s)" + ("" if others else ": this node is alone"))
    for member in others:
        where = "linked" if member.link is not None else "no link"
        lines.append(f"  {member.id[:8]} {member.url} {member.state}, {where}"
                     + (f", zone {member.zone}" if member.zone else "")
                     + f": {', '.join(member.record.services) or 'no services'}")
    for dial in node.links.dials.values():
        if not (dial.link is not None and dial.link.member is not None):
            kind = "seed" if dial.seed else "member"
            reason = dial.error or dial.endpoint.error or dial.endpoint.state
            lines.append(f"  {kind} {dial.url}: {reason}")
    lines += node.sources.explain()
    lines += [f"  {error.text}" for url, error in node.rejections.items()
              if url not in node.links.dials]
    lines += node.rejections.explain()
    if node.pulse.names is not None:
        lines += [f"  the host name {host} does not resolve: {error}; its member is reached over "
                  "links alone" for host, error in node.pulse.names.failing().items()]
    for name, service in node.services.items():
        gate = service.requests
        lines.append(f"serves {name!r}: {gate.running} of {gate.concurrency} run, "
                     f"{len(gate.queue)} wait, {gate.refused} refused, {gate.expired} expired")
    lines += [gateway.explain() for gateway in node.gateways]
    counts = node.requests.counts
    lines.append(f"requests: {counts['asked']} asked, {counts['answered']} answered, "
                 f"{node.requests.pending} pending, " + ", ".join(
                     f"{counts[name]} {name}" for name in ("faults", "timeouts", "overloaded",
                                                           "lost", "unserved", "retries")))
    dropped = {**_dropped(node), **node.counts}
    if dropped:
        lines.append("dropped or failed: " + ", ".join(
            f"{count} {name}" for name, count in sorted(dropped.items())))
    return readable("\n".join(lines))      # a file of seeds may have any bytes
