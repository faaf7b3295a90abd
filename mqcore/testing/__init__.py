"""Drivers and conformance suites, and `leaks()` for tests."""

from __future__ import annotations


def leaks() -> dict[str, int]:
    """What is alive in this process's contexts though no open socket owns it: connections
    (engines), pipes (links), and, once a context's sockets are all gone, blocks of message bodies
    (slabs). What has just been closed may take a moment; zero in the end."""
    from mqcore.control.hub import HUBS

    found = {"engines": 0, "links": 0, "slabs": 0}
    for hub in list(HUBS):
        if hub.forked or not hub.started:
            continue
        with hub.lock:
            hub.pump()
            open_ones = list(hub.sockets.values())
            counts = hub._plane.counters()
            owned = sum(len(links.wires) for links in open_ones)
            found["engines"] += max(0, counts["engines"] - owned)
        if not open_ones:
            found["links"] += counts["links"]
            if counts["sockets"] == 0:
                hub._plane.drain()
                found["slabs"] += hub._plane.counters()["slabs"]
    return found
