"""inproc: joins sockets of one context by name. A socket that connects before the name is bound
waits as a suitor. Two sockets that fit are joined directly by pipes.

The hub's lock is held where the tables are touched, as in tables.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mqcore.control import events
from mqcore.control.connection import claims
from mqcore.control.endpoint import Endpoint
from mqcore.control.stats import Peer
from mqcore.errors import AddressInUse, HandshakeFailed, PeerError, SocketClosed
from mqcore.link.backoff import Backoff
from mqcore.spi import url

if TYPE_CHECKING:
    from mqcore.control.endpoints import Endpoints
    from mqcore.control.peers import Peers
    from mqcore.control.tables import Tables


def bind(links: Endpoints, parsed: url.Url, transport: Any) -> Endpoint:
    name = parsed.address
    transport.check(name, "bind")
    with links.hub.lock:
        if links.core.closed:
            raise SocketClosed("the socket is closed")
        if name in links.hub.inproc:
            raise AddressInUse(f"inproc://{name} is already bound in this context",
                               errno=errno.EADDRINUSE)
        endpoint = Endpoint(url.render("inproc", name), "bind", given=parsed.text,
                            lock=links.hub.lock)
        endpoint.set_closer(lambda: links.end(endpoint))
        links.hub.inproc[name] = (links, endpoint)
        links.nodes[endpoint] = None
        links.emit(events.Listening, endpoint, None, "")  # before anything comes of it
        marry_suitors(links, endpoint, name)
    return endpoint


def connect(links: Endpoints, parsed: url.Url, transport: Any, options: Mapping[str, Any],
            of: Endpoint | None) -> Endpoint:
    name = parsed.address
    transport.check(name, "connect")
    endpoint = Endpoint(url.render("inproc", name), "connect", given=parsed.text,
                        lock=links.hub.lock)
    endpoint.of = of
    endpoint.set_closer(lambda: links.end(endpoint))
    with links.hub.lock:
        if links.core.closed:
            raise SocketClosed("the socket is closed")
        bound = links.hub.inproc.get(name)
        reason = misfit(links, bound[0]) if bound is not None else ""
        if reason:  # both ends are in this process, so no peer that fits replaces this one
            raise HandshakeFailed(f"cannot connect to {endpoint.url}: {reason}", reason=reason)
        links.nodes[endpoint] = None
        if options["reconnect"] is not None:
            links.pauses[endpoint] = Backoff(options["reconnect"], options["reconnect_max"])
        links.count(endpoint, True)
        court(links, endpoint, name, options["prio"])
    return endpoint


def court(links: Tables, endpoint: Endpoint, name: str, prio: int) -> None:
    found = links.hub.inproc.get(name)
    if links.core is None:
        return
    # without a core it is garbage, and leaves the name soon
    if found is None or found[0].core is None or found[0].full():
        links.hub.suitors.setdefault(name, []).append((links, endpoint, prio))
    else:
        marry(links, endpoint, found[0], found[1], prio)


def marry_suitors(links: Peers, endpoint: Endpoint, name: str) -> None:
    """Join those that wait for this name, unless departed peers have left `links` too much to read.
    Callers hold the hub's lock."""
    suitors = links.hub.suitors.pop(name, [])
    while suitors and not links.full():
        other, theirs, prio = suitors.pop(0)
        if other.core is not None:
            marry(other, theirs, links, endpoint, prio)
    if suitors:
        links.hub.suitors.setdefault(name, []).extend(suitors)


def accept_again(links: Peers) -> None:
    """Departed peers have left less unread: others may join."""
    core = links.core     # kept from being collected meanwhile
    if core is None:
        return
    with links.hub.lock:
        for name, (bound, endpoint) in list(links.hub.inproc.items()):
            if bound is links and name in links.hub.suitors:
                marry_suitors(links, endpoint, name)


def misfit(links: Tables, other: Tables) -> str:
    """Why these two cannot be joined; "": they can."""
    if links.any_pattern and other.any_pattern or (
            other.plugin.kind in links.fitting() and links.plugin.kind in other.fitting()):
        return ""
    return f"a {links.plugin.name} cannot talk to a {other.plugin.name}"


def marry(links: Tables, mine: Endpoint, other: Tables, theirs: Endpoint,
          prio: int) -> None:
    """Join two sockets of one context. Callers hold the hub's lock."""
    reason = misfit(links, other)
    if reason:
        mine.move("stopped", HandshakeFailed(f"{mine.url}: {reason}", reason=reason),
                  fatal=True)
        links.count(mine, False)
        links.emit(events.HandshakeFailed, mine, None, reason)
        return
    my_peer, its_peer = links.core._join(other.core, prio, 8)
    links.joined[my_peer] = (mine, other, prio)
    other.joined[its_peer] = (theirs, links, 8)
    links.peers[my_peer] = Peer(my_peer, theirs.url, mine.url, "inproc", other.plugin.name,
                                other.routing_id(), None, os.getpid(),
                                claims(other.options.get("metadata", {})), prio, mine.url)
    other.peers[its_peer] = Peer(its_peer, mine.url, theirs.url, "inproc", links.plugin.name,
                                 links.routing_id(), None, os.getpid(),
                                 claims(links.options.get("metadata", {})), 8, theirs.url)
    mine.move("connected")
    links.emit(events.Connected, mine, links.peers[my_peer], "")
    other.emit(events.Accepted, theirs, other.peers[its_peer], "")
    other.emit(events.Connected, theirs, other.peers[its_peer], "")


def gone(links: Tables, number: int, refused: bool) -> None:
    """A pipe has ended and its messages have been handled. `refused`: the pattern at one end
    refused the peer."""
    joined = links.joined.pop(number, None)
    if joined is None:
        return
    endpoint, _, prio = joined
    peer = links.peers.get(number)
    links.forget_peer(number)
    why = "the pattern refused the peer" if refused else "the other end closed"
    links.emit(events.Disconnected, endpoint, peer, why)
    if endpoint.kind != "connect" or endpoint not in links.nodes or _left(links):
        return
    error = PeerError(f"{endpoint.url}: {why}")
    pauses = links.pauses.get(endpoint)
    if not refused:
        if pauses is not None:
            pauses.reset()
        endpoint.move("waiting", error)
        court(links, endpoint, endpoint.url.removeprefix("inproc://"), prio)
        return
    if pauses is None:
        endpoint.move("stopped", error, fatal=True)
        links.count(endpoint, False)
        links.emit(events.Stopped, endpoint, None, why)
        return
    # like a Connector: a refused peer does not reconnect at once
    when = links.hub.loop.clock() + pauses.next()
    links.hub.loop.call_at(when, court_again, links, endpoint, prio)
    endpoint.move("waiting", error)
    links.emit(events.Retrying, endpoint, None, why)


def court_again(links: Tables, endpoint: Endpoint, prio: int) -> None:
    with links.hub.lock:
        if endpoint in links.nodes and not _left(links):
            court(links, endpoint, endpoint.url.removeprefix("inproc://"), prio)


def _left(links: Tables) -> bool:
    core = links.core
    return core is None or bool(core.closed)


def forget(links: Tables, endpoint: Endpoint) -> None:
    name = endpoint.url.removeprefix("inproc://")
    bound = links.hub.inproc.get(name)
    if bound is not None and bound[1] is endpoint:
        del links.hub.inproc[name]
    waiting = links.hub.suitors.get(name)
    if waiting:
        waiting[:] = [suitor for suitor in waiting if suitor[1] is not endpoint]
        if not waiting:
            del links.hub.suitors[name]
