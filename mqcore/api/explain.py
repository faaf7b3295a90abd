"""explain(): a socket's state in plain words, and the shorter `why` of a WaitTimeout."""

from __future__ import annotations

from typing import Any

SUBSCRIBERS, TOPICS = 1, 4
SENDS, FANOUT, EXCHANGE = 1, 32, 64  # of PatternFlag


def _set(endpoint: Any, peers: list[Any], links: Any) -> str:
    """A resolver's URL: its members and their states."""
    members = endpoint.members
    text = f"{endpoint.url} stands for {len(members) or 'no'} endpoint{'s' * (len(members) != 1)}"
    if endpoint.error is not None and all(endpoint.error is not m.error for m in members):
        text += f" ({endpoint.error.text})"
    return text + "".join(f"\n  {_endpoint(member, peers, links)}" for member in members)


def _listening(endpoint: Any, here: list[Any], links: Any) -> str:
    if here:
        text = f"{len(here)} connected"
    elif any(peer.endpoint == endpoint.url for peer in list(links.gone.values())):
        text = "no peer is connected now"
    else:
        text = "no peer has connected yet"
    if links.crowded():
        text += (". It accepts no connection until you have received more of what disconnected "
                 "peers left")
    return f"listening at {endpoint.url}: {text}"


def _endpoint(endpoint: Any, peers: list[Any], links: Any) -> str:
    if endpoint.follows:
        return _set(endpoint, peers, links)
    here = [peer for peer in peers if peer.endpoint == endpoint.url]
    state = endpoint.state
    if state == "listening":
        text = _listening(endpoint, here, links)
    elif state == "connected" or here:
        text = f"connected to {endpoint.url}"
    elif state == "handshaking":
        text = f"reached {endpoint.url}, which has not finished the handshake"
    elif state == "waiting":
        text = f"not connected to {endpoint.url}, trying again soon"
    elif state == "stopped":
        text = f"stopped trying {endpoint.url}"
    elif state == "closed":
        text = f"{endpoint.url} is closed"
    elif endpoint.url.removeprefix("inproc://") in links.hub.inproc:
        text = f"{endpoint.url} accepts no peer until it has received more of what others left"
    elif endpoint.url.startswith("inproc://"):
        text = f"nothing in this context is bound to {endpoint.url}"
    else:
        text = f"connecting to {endpoint.url}"
    return text + (f" ({endpoint.error.text})" if endpoint.error is not None else "")


def why_no_peers(sock: Any) -> str:
    """One line: why no peer is connected."""
    endpoints = sock.endpoints
    if not endpoints:
        return "the socket is neither bound nor connected"
    links = sock._links
    peers = links.present()
    return "; ".join(_endpoint(endpoint, peers, links).replace("\n ", ":", 1).replace("\n ", ",")
                     for endpoint in endpoints)


def _of_peer(peer: Any, stats: Any, options: Any, alone_full: bool) -> str:
    """One peer. alone_full: it is the only peer and its queue is full, so a send would wait."""
    text = f"  {peer}"
    if stats is None:
        return text
    text += f": {stats.offered} out, {stats.read} in"
    if stats.queued_out:
        text += f", {stats.queued_out} queued to send"
    most = options["send_hwm"]
    if alone_full or (most is not None and stats.queued_out >= most):
        text += " (at its high-water mark: the peer reads too slowly)"
    if stats.queued_in:
        text += f", {stats.queued_in} not yet received by this program"
    for reason, count in stats.dropped.items():
        text += f", {count} dropped ({reason})"
    return text


def _waits_at_its_mark(sock: Any) -> bool:
    """Whether a send waits only for queue space, not for a reply or a named peer."""
    plain = sock.plugin.flags & (SENDS | EXCHANGE | FANOUT) == SENDS
    return plain and sock.pattern not in ("router", "stream")


def _departed(stats: Any) -> list[str]:
    if not stats.departed:
        return []
    return [f"{stats.total.queued_in} message(s) of {stats.departed} disconnected peer(s) are not "
            "yet received by this program."]


def _state(sock: Any, stats: Any) -> list[str]:
    out = _departed(stats)
    name = sock.pattern
    if name == "sub" and not sock.topics:
        out.append('It has no subscription, so no message can arrive; '
                   'subscribe(b"") subscribes to everything.')
    if name == "dish" and not sock.groups:
        out.append("It has joined no group, so no message can arrive.")
    if stats.waiting:
        out.append(f"{stats.waiting} message(s) wait in the socket for a peer with space.")
    if name in ("pub", "xpub"):
        out.append(f"{sock._query(SUBSCRIBERS, b'')} peer(s) subscribe to everything; "
                   f"{stats.unmatched} message(s) had no subscriber.")
    if name == "radio":
        out.append(f"{stats.unmatched} message(s) were for groups without a member.")
    for reason, count in stats.dropped.items():
        out.append(f"{count} message(s) were dropped ({reason}).")
    readable, writable = sock._can()
    if sock.plugin.receives:
        out.append("recv() would " + ("not wait." if readable else "wait: no message has arrived."))
    if sock.plugin.sends and not writable:
        out.append("send() would wait: " + ("every peer is at its high-water mark, or the pattern "
                   "requires a recv() first." if sock._attached() else "no peer is connected."))
    return out


def explain(sock: Any) -> str:
    """See Socket.explain()."""
    links = sock._links
    if links is None:
        return "This socket was never opened."
    if links.hub.forked:
        return "This socket belongs to the parent process; open a new one in this process."
    if sock.closed:
        return "This socket is closed."
    stats = links.stats()
    peers = links.present()
    lines = [f"A {sock.pattern} socket: {stats.sent} sent, {stats.received} received."]
    if not sock.endpoints:
        lines.append("It is neither bound nor connected.")
    for endpoint in sock.endpoints:
        lines.append(_endpoint(endpoint, peers, links) + ".")
    if peers:
        lines.append(f"{len(peers)} peer(s):")
        alone_full = len(peers) == 1 and _waits_at_its_mark(sock) and not sock._can()[1]
        lines += [_of_peer(peer, stats.peers.get(peer), sock._options, alone_full)
                  for peer in peers]
    return "\n".join(lines + _state(sock, stats))
