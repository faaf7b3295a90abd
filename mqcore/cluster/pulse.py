"""The membership protocol of a node: `Membership` with its datagrams, timer and exchanges.

Datagrams go over UDP, from a socket at the host that the node listens at. To a member without UDP
(one that listens at ipc:// only, or was made with `udp=False`) they go over its link, as `Gossip`
frames. Members that do not answer datagrams are probed over their link as well, so a network that
blocks UDP costs speed and not the membership.

The record of the protocol carries this node's services as its metadata.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

from mqcore.cluster import frames
from mqcore.cluster.gossip import messages
from mqcore.cluster.gossip.messages import State
from mqcore.cluster.membership import Address, Event, Membership
from mqcore.cluster.names import Names, numeric
from mqcore.errors import NO_FILES, NotSupported
from mqcore.spi.url import parse

try:
    import msgspec
except ImportError:
    raise NotSupported("a cluster needs the package msgspec",
                       hint="pip install mqcore[cluster]") from None

if TYPE_CHECKING:
    from mqcore.cluster.node import Core

DATAGRAM = 9000         # bytes
TURN = 64               # datagrams taken in one go
WILDCARDS = ("*", "0.0.0.0", "::", "[::]")
_META: Any = msgspec.msgpack.Decoder(tuple[dict[frames.Name, frames.Offer], frames.Word])
_encode = msgspec.msgpack.Encoder().encode


def meta_of(record: frames.Record) -> bytes:
    meta: bytes = _encode((record.services, record.version))
    return meta


def record_of(heard: messages.Record) -> frames.Record | None:
    """The record in the protocol's record. None if its metadata are missing or malformed."""
    try:
        services, version = _META.decode(heard.meta or b"")
        return frames.Record(heard.id, heard.link, heard.incarnation, heard.zone, services, version)
    except (ValueError, RecursionError):
        return None


def wildcard(url: str) -> bool:
    """Whether the URL names every interface of this machine, which says nothing to others."""
    parsed = parse(url)
    host, colon, _ = parsed.address.rpartition(":")
    return parsed.transport == "tcp" and bool(colon) and host in WILDCARDS


def reachable(url: str, seeds: tuple[str, ...]) -> str:
    """The URL to give to others. For a wildcard address, that of the interface towards the first
    seed, or towards the default route."""
    if not wildcard(url):
        return url
    port = parse(url).address.rpartition(":")[2]
    target = "192.0.2.1"        # an address for documentation (RFC 5737); nothing is sent
    for seed in seeds:
        there = seed.partition("://")[2].rpartition(":")[0]
        if there:
            target = there.strip("[]")
            break
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                found = probe.getsockname()[0]
                return f"tcp://[{found}]:{port}" if ":" in found else f"tcp://{found}:{port}"
        except OSError as error:
            if error.errno in NO_FILES:     # this would hold as long as the node
                raise
    return f"tcp://127.0.0.1:{port}"


class Pulse:
    def __init__(self, node: Core, record: frames.Record, udp: bool) -> None:
        self.node = node
        self.socket: Any = self._open(node.links.urls[0]) if udp else None
        self.failed = 0             # datagrams that the system did not take
        self.names: Names | None = None
        if self.socket is not None:
            self.names = Names(node.loop, self.socket.family, self._sendto, self._resolved)
        host, port = record.id.hex(), 0
        if self.socket is not None:
            host, port = self._advertised(record.url), self.socket.getsockname()[1]
        mine = messages.Record(record.id, record.incarnation, host, port, record.url, record.zone,
                               meta_of(record))
        self.membership = Membership(mine, node.key.gossip_keys(), banned=node.key.banned)
        self._by_address: dict[Address, bytes] = {}
        self._armed = float("inf")
        self._disarm: Any = None
        self._unwatch: Any = None
        self._closed = False

    @property
    def incarnation(self) -> int:
        return self.membership.me.incarnation

    def start(self) -> None:
        if self.socket is not None:
            self._unwatch = self.node.loop.reader(self.socket, self._readable)
        self._flush()

    def _open(self, url: str) -> Any:
        """A UDP socket at the host of the URL; None where there is none."""
        parsed = parse(url)
        host = parsed.address.rpartition(":")[0]
        if parsed.transport != "tcp":
            return None
        host = "0.0.0.0" if host == "*" else host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            made.setblocking(False)
            made.bind((host, 0))
        except OSError:
            made.close()
            return None
        return made

    def _advertised(self, url: str) -> str:
        host = parse(url).address.rpartition(":")[0].strip("[]")
        return host or "127.0.0.1"

    # -- in ----------------------------------------------------------------------------------------

    def _readable(self) -> None:
        for _ in range(TURN):
            try:
                data, address = self.socket.recvfrom(DATAGRAM + 1)
            except OSError:     # nothing more, or a port that was closed (ICMP)
                break
            self.membership.on_datagram(address[:2], data)
        self._flush()

    def gossip(self, link: Any, frame: frames.Gossip) -> None:
        """A datagram over a link. It is answered there."""
        self.membership.on_datagram((link.member.record.id.hex(), 0), frame.data)
        self._flush()

    def exchange(self, link: Any, frame: frames.Exchange) -> None:
        answer = self.membership.on_sync(frame.data)
        if answer is not None:
            link.send(frames.Exchange(answer))
        self._flush()

    def greeted(self, link: Any) -> None:
        """A new link: exchange what both know; the side that made it begins."""
        self.membership.heard(link.member.record.id)
        if link.dial is not None:
            link.send(frames.Exchange(self.membership.begin_sync()))
        self._flush()

    def believes(self, member: bytes) -> bool:
        """Whether gossip has it that the member is there, or may be."""
        return self.membership.state(member) in (State.ALIVE, State.SUSPECT)

    def unlinked(self, member: bytes) -> None:
        self.membership.suspect_link(member)
        self._flush()

    def refused(self, member: bytes) -> None:
        self.membership.refused_link(member)
        self._flush()

    def answered(self, member: bytes) -> None:
        """An answer to a probe over a link."""
        self.membership.heard(member)

    def announce(self, record: frames.Record) -> None:
        """This node's record has changed: spread it with a higher incarnation."""
        self.membership.update(meta=meta_of(record))
        self._flush()

    def leave(self) -> None:
        self.membership.leave()
        self._flush()

    # -- out ---------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Take and do whatever the membership wants."""
        if self._closed:
            return
        membership = self.membership
        for event in membership.events():
            self._event(event)
        for address, data in membership.datagrams():
            self._send(address, data)
        for sync in membership.syncs():
            link = self._link(sync.record.id) if sync.record is not None else None
            if link is not None:
                link.send(frames.Exchange(membership.begin_sync()))
        for member in membership.link_probes():
            link = self._link(member)
            if link is not None:
                link.send(frames.Ping(0))
        due = membership.next_tick()
        if due < self._armed:
            if self._disarm is not None:
                self._disarm()
            self._armed = due
            self._disarm = self.node.loop.later(max(0.001, due - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._armed = float("inf")
        self._disarm = None
        if not self._closed:
            self.membership.tick()
            self._flush()

    def _link(self, member: bytes) -> Any:
        known = self.node.directory.members.get(member)
        return None if known is None else known.link

    def _send(self, address: Address, data: bytes) -> None:
        host, port = address[:2]
        if self.socket is None or self.names is None or not port:
            self._send_linked(host, port, data)
        elif numeric(host):
            self._sendto(data, (host, port))
        elif not self.names.post(data, host, port):
            self._send_linked(host, port, data)

    def _send_linked(self, host: str, port: int, data: bytes) -> None:
        """To a member that datagrams cannot reach, over its link."""
        member = self._by_address.get((host, port))
        if member is None and not port and len(host) == 32:
            member = bytes.fromhex(host)
        link = self._link(member) if member is not None else None
        if link is None or not link.send(frames.Gossip(data)):
            self.failed += 1

    def _sendto(self, data: bytes, address: Address) -> None:
        if self._closed or self.node.pid != os.getpid():        # a forked child is no member
            return
        try:
            self.socket.sendto(data, address)
        except (OSError, ValueError, TypeError):
            # a full buffer, a network that is down: a loss on the way
            self.failed += 1

    def _resolved(self, host: str, error: str) -> None:
        if not self._closed:
            self.node.directory.event("trouble" if error else "resolved", None,
                                      f"the host name {host} does not resolve: {error}" if error
                                      else f"the host name {host} resolves again")

    def _event(self, event: Event) -> None:
        record = event.record
        self._by_address[record.host, record.port] = record.id
        while len(self._by_address) > 20_000:
            self._by_address.pop(next(iter(self._by_address)))
        if event.kind in ("joined", "updated"):
            known = record_of(record)
            if known is not None:
                self.node.heard(known)
        elif event.kind in ("failed", "left"):
            self._by_address.pop((record.host, record.port), None)
            self.node.buried(record.id, event.kind)
        else:
            self.node.suspected(record.id, event.kind == "suspected")

    def close(self) -> None:
        self._closed = True
        if self._disarm is not None:
            self._disarm()
        if self._unwatch is not None:
            self._unwatch()
        if self.socket is not None:
            self.socket.close()
