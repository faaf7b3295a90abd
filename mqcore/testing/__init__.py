"""The test kit: conformance suites for plug-ins, a scripted transport, a manual clock,
`leaks()`, and the pytest plug-in. The guide is README.md beside this file.

    TransportSuite, MulticastSuite, FilterSuite, PatternSuite
                                   classes of tests; a plug-in's author subclasses them
    ScriptedTransport, Link, ...   a stream transport that follows a script (scripted.py)
    SlowLink                       a relay that is slow, stalls and breaks (delay.py)
    ManualClock                    stands still until a test moves it (clock.py)
    installed(kind, plugin)        a plug-in without a distribution, while a test lasts
    leaks()                        what is alive though nothing owns it
    until(true)                    wait for what happens in other threads

`mqcore.testing.native`, in development builds alone, drives parts of the data plane: tests/native.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

_WHERE = {  # imported when first asked for: the suites need pytest, which leaks() does not
    "TransportSuite": "transport_suite", "FilterSuite": "filter_suite",
    "PatternSuite": "pattern_suite", "MulticastSuite": "multicast_suite", "needs": "suite",
    "ScriptedTransport": "scripted", "Link": "scripted", "Pass": "scripted", "Stall": "scripted",
    "Shut": "scripted", "Reset": "scripted", "Fails": "scripted", "Hangs": "scripted",
    "refused": "scripted", "ManualClock": "clock", "until": "watch", "SlowLink": "delay",
}
__all__ = ["installed", "leaks", *_WHERE]  # noqa: F822


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"mqcore.testing.{where}"), name)


def installed(kind: str, plugin: Any) -> contextlib.AbstractContextManager[None]:
    """Install a "transport", "filter", "resolver", "pattern" or "strategy" without a distribution,
    for as long as the context lasts. The registry checks it as usual: PluginError if it is refused,
    or if its name is taken."""
    from mqcore.spi import registry

    return registry.lend(kind, plugin, "a test")


def leaks() -> dict[str, int]:
    """What is alive in this process's contexts though no open socket owns it: connections
    (engines), pipes (links), and, once a context's sockets are all gone, blocks of message bodies
    (slabs). What has just been closed may take a moment; zero in the end."""
    from mqcore.control.hub import HUBS

    found = {"engines": 0, "links": 0, "slabs": 0}
    for hub in HUBS:
        plane = hub._plane
        if hub.forked or not hub.started or plane is None:
            continue
        hub.pump()
        with hub.lock:
            open_ones = list(hub.sockets.values())
            counts = plane.counters()
            owned = sum(len(links.connections) for links in open_ones)
            found["engines"] += max(0, counts["engines"] - owned)
        if not open_ones:
            found["links"] += counts["links"]
            if counts["sockets"] == 0:
                plane.drain()
                found["slabs"] += plane.counters()["slabs"]
    return found
