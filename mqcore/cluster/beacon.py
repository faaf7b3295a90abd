"""The seed "lan": nodes of one key find each other on a local network, by multicast over UDP.

    lan                             the group 239.192.77.81, port 7401
    lan://239.192.1.1:9000          another group
    lan://eth0;239.192.1.1:9000     on one interface (a name, or an address of this machine)

A node that is alone calls: at once, then after pauses that grow from 0.25 s to 30 s. Nodes that
hear a call answer after a random pause of up to 0.2 s, unless three others have answered by then.
Both kinds of packet name the address of their sender, so every node that hears one connects to it.
In company a node calls about once in a minute (less often in large clusters), so that halves of a
cluster that do not know each other meet.

    nonce (24) | sealed: kind (1), milliseconds (8), node id (16), length (1), URL, zeros | tag (16)

A packet has 200 bytes and looks random: an observer learns that there is a beacon, and the sender's
address, but no name, no port and no id of a key. HMAC-SHA256(beacon key, the first 12 bytes of the
nonce) is the key of the packet, the other 12 are the nonce of ChaCha20-Poly1305 (RFC 8439). A
packet counts if one of the key's secrets opens it and if it is at most 5 minutes old. It only gives
an address to try: the link's own handshake proves which node is there. A packet counts once, and
PENDING addresses are tried at a time. An address that only programs of its own machine can reach
counts if the packet comes from this machine.

A node reads up to READ packets a second and leaves the others to the kernel. It sends up to SENT.
"""

from __future__ import annotations

import ipaddress
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mqcore.cluster.crypto import InvalidTag, aead_of, hmac_sha256
from mqcore.cluster.names import numeric
from mqcore.errors import NO_FILES, AddressError, Error
from mqcore.spi import inet
from mqcore.spi.url import parse

if TYPE_CHECKING:
    from mqcore.cluster.node import Core

GROUP, PORT = "239.192.77.81", 7401     # of the organization-local scope (RFC 2365)
SIZE = 200              # bytes of a packet
NONCE, TAG = 24, 16
INSIDE = SIZE - NONCE - TAG
CALL, HERE = 1, 2       # kinds
TOLERANCE = 300.0       # seconds between two clocks
FIRST, ALONE = 0.25, 30.0       # seconds between two calls of a node that is alone
COMPANY = 60.0          # seconds between two calls of one that is not, at least
SETTLE = 1.0            # seconds that a joining node waits for the first answer
ANSWER = 0.2            # seconds within which a call is answered
ENOUGH = 3              # answers that make others superfluous
READ = 200              # packets a second
SENT = 5
PAUSE = 0.2             # seconds without reading, once READ is used up
SEEN = 4096             # packets that are remembered, so that each counts once
PENDING = 16            # addresses that are being tried
GIVE_UP = 10.0          # seconds until one is given up
IP_MULTICAST_ALL = 49   # linux/in.h

_HEAD = struct.Struct(">BQ16sB")
URL = INSIDE - _HEAD.size       # bytes of the longest address


class Where(NamedTuple):
    """A group, its port, and the interface by name or address; "" for the system's choice."""

    group: str = GROUP
    port: int = PORT
    interface: str = ""

    @classmethod
    def parse(cls, seed: str) -> Where:
        """What a seed says; "" stands for the defaults. Raises AddressError."""
        if not seed:
            return cls()
        url = parse(seed)
        try:
            source, place = inet.parse(url.address, "bind", front=True)
            if not place.port or not _is_group(place.host) or (source is not None and source.port):
                raise AddressError("this is no group of IPv4 multicast",
                                   hint=f"write lan, or lan://{GROUP}:{PORT}")
        except AddressError as error:
            raise url.locate(error) from None
        return cls(place.host, place.port, "" if source is None else source.host)

    def __str__(self) -> str:
        front = f"{self.interface};" if self.interface else ""
        return f"lan://{front}{self.group}:{self.port}"

    def target(self) -> str:
        """An address behind the interface that packets leave through. May block; OSError."""
        if not self.interface:
            return self.group
        return str(next(sockaddr[0] for family, sockaddr in inet.look_up(self._place())
                        if family == socket.AF_INET))

    def _place(self) -> inet.Place:
        return inet.Place(self.interface, 0, numeric(self.interface))

    def open(self) -> socket.socket:
        """A socket that is in the group. OSError where the network has no multicast."""
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            made.bind((self.group, self.port))
            index = inet.interface_index(self._place()) if self.interface else 0
            group = socket.inet_aton(self.group)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                            struct.pack("@4s4si", group, b"", index))
            if index:
                made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                                struct.pack("@4s4si", b"", b"", index))
        except OSError:
            made.close()
            raise
        return made


def _is_group(host: str) -> bool:
    try:
        return ipaddress.IPv4Address(host).is_multicast
    except ValueError:
        return False


def local(url: str) -> bool:
    """Whether only programs of the same machine can connect to this address."""
    parsed = parse(url)
    host = parsed.address.rpartition(":")[0].strip("[]")
    return parsed.transport != "tcp" or host == "localhost" or (
        numeric(host) and ipaddress.ip_address(host).is_loopback)


def is_ours(address: str) -> bool:
    """Whether this is an IPv4 address of this machine. Raises Refused if no descriptor is left to
    look with."""
    try:
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        raise Refused("busy") from None
    with probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


class Heard(NamedTuple):
    kind: int
    milliseconds: int       # since 1970
    id: bytes
    url: str


class Refused(Exception):
    """A packet does not count; `args[0]` is the reason, a key of `Beacon.refused`."""


class Seal:
    """Packets to bytes and back. No I/O."""

    def __init__(self, keys: Sequence[bytes], wall: Callable[[], float] = time.time,
                 draw: Callable[[int], bytes] = os.urandom) -> None:
        self._keys = list(keys)
        self._wall = wall
        self._draw = draw
        self._seen: dict[bytes, None] = {}      # nonces, in order

    def seal(self, kind: int, node: bytes, url: str) -> bytes:
        """The packet. `url` has at most `URL` bytes."""
        text = url.encode()
        plain = _HEAD.pack(kind, int(self._wall() * 1000), node, len(text)) + text
        nonce = self._draw(NONCE)
        sealed: bytes = _cipher(self._keys[0], nonce).encrypt(
            nonce[12:], plain.ljust(INSIDE, b"\0"), None)
        return nonce + sealed

    def open(self, data: bytes) -> Heard:
        """What the packet says. Raises Refused."""
        if len(data) != SIZE:
            raise Refused("size")
        nonce = data[:NONCE]
        for key in self._keys:
            try:
                plain = _cipher(key, nonce).decrypt(nonce[12:], data[NONCE:], None)
            except InvalidTag:
                continue
            kind, milliseconds, node, length = _HEAD.unpack_from(plain)
            if abs(self._wall() - milliseconds / 1000) > TOLERANCE:
                raise Refused("clock")
            try:
                url = plain[_HEAD.size:_HEAD.size + length].decode()
                parse(url)
            except (UnicodeDecodeError, AddressError):
                raise Refused("malformed") from None
            if kind not in (CALL, HERE) or length > URL:
                raise Refused("malformed")
            if nonce in self._seen:
                raise Refused("repeated")
            self._seen[nonce] = None
            while len(self._seen) > SEEN:
                del self._seen[next(iter(self._seen))]
            return Heard(kind, milliseconds, node, url)
        raise Refused("foreign")


def _cipher(key: bytes, nonce: bytes) -> Any:
    return aead_of(hmac_sha256(key, nonce[:12]))


class Beacon:
    """A node's place in a group. `dials` are the connections that its packets have led to."""

    def __init__(self, node: Core, where: Where) -> None:
        self.node = node
        self.where = where
        self.error = ""             # why multicast does not work here
        self.sent = self.heard = 0
        self.refused = dict.fromkeys(("size", "foreign", "clock", "malformed", "repeated",
                                      "local", "busy", "rate"), 0)
        self.dials: dict[str, Any] = {}
        self._seal = Seal(node.key.beacon_keys())
        self._socket: socket.socket | None = None
        self._cancel: dict[str, Callable[[], Any]] = {}     # by what it is about
        self._began = time.monotonic()
        self._pause = FIRST
        self._company = False       # at the last call
        self._answers = 0           # since the last call
        self._reads, self._sends = Bucket(READ), Bucket(SENT)

    def start(self) -> None:
        """Listen and call. Where the network has no multicast, `error` says so. Raises OSError if
        no descriptor is left."""
        if len(self.node.url.encode()) > URL:
            self._fail(f"this node's address is longer than {URL} bytes")
            return
        try:
            self._socket = self.where.open()
        except OSError as error:
            if error.errno in NO_FILES:     # the network may have multicast
                raise
            self._fail(error.strerror or str(error))
            return
        self._listen()
        self._call()

    def close(self) -> None:
        for cancel in self._cancel.values():
            cancel()
        self._cancel.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def settled(self) -> bool:
        """Whether a node that joins need not wait any longer."""
        if self._socket is None or not self.dials:
            return self._socket is None or time.monotonic() - self._began > SETTLE
        return all(dial.done or dial.error or linked(dial) for dial in self.dials.values())

    def stats(self) -> dict[str, Any]:
        return {"sent": self.sent, "heard": self.heard, "refused": dict(self.refused)}

    def explain(self) -> str:
        refused = ", ".join(f"{count} {name}" for name, count in self.refused.items() if count)
        text = self.error or f"{self.heard} packet(s) heard, {self.sent} sent"
        if refused:
            text += f"; refused: {refused}"
        if local(self.node.url):
            text += f"; only programs of this machine can connect to {self.node.url}"
        return f"  seed {self.where}: {text}"

    def _fail(self, why: str) -> None:
        self.error = f"no multicast here: {why}"
        self.node.directory.event("trouble", None, f"seed {self.where}: {self.error}")

    # -- out ---------------------------------------------------------------------------------------

    def _later(self, what: str, seconds: float, function: Callable[[], Any]) -> None:
        """Once, and not again while it is under way."""
        if what not in self._cancel:
            def run() -> None:
                del self._cancel[what]
                function()

            self._cancel[what] = self.node.loop.later(seconds, run)

    def _call(self) -> None:
        self._answers = 0
        self._send(CALL)
        others = len(self.node.directory.members)
        self._company = others > 0
        if others:      # all of a large cluster together about once in a second
            self._pause = FIRST
            pause = max(COMPANY, float(others))
        else:
            pause, self._pause = self._pause, min(self._pause * 2, ALONE)
        self._later("call", pause * random.uniform(0.75, 1.25), self._call)

    def _answer(self) -> None:
        if self._answers < ENOUGH:
            self._send(HERE)

    def _send(self, kind: int) -> None:
        if self._socket is None or not self._sends.take(time.monotonic()):
            return
        me = self.node.directory.me.record
        try:
            self._socket.sendto(self._seal.seal(kind, me.id, me.url),
                                (self.where.group, self.where.port))
            self.sent += 1
            self.error = ""
        except BlockingIOError:
            pass                # a full buffer: a loss on the way
        except OSError as error:
            if not self.error:
                self._fail(error.strerror or str(error))

    # -- in ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._socket is not None:
            self._cancel["read"] = self.node.loop.reader(self._socket, self._readable)

    def _readable(self) -> None:
        while self._reads.take(time.monotonic()):
            if self._socket is None:
                return
            try:
                data, source = self._socket.recvfrom(SIZE + 1)
            except OSError:
                return
            self.heard += 1
            try:
                self._take(self._seal.open(data), source[0])
            except Refused as refused:
                self.refused[refused.args[0]] += 1
        # a flood: the kernel drops what follows, for a while
        self.refused["rate"] += 1
        self._cancel.pop("read")()
        self._later("listen", PAUSE, self._listen)

    def _take(self, heard: Heard, source: str) -> None:
        directory = self.node.directory
        if heard.id == directory.me.record.id:
            return
        if heard.kind == HERE:
            self._answers += 1
        else:
            self._answers = 0
            self._later("answer", random.uniform(0, ANSWER), self._answer)
        if heard.id in directory.members or heard.id in self.node.key.banned:
            return
        if local(heard.url) and not is_ours(source):
            raise Refused("local")
        if len(self.dials) >= PENDING:
            raise Refused("busy")
        links = self.node.links
        if heard.url not in links.dials:
            try:
                links.check(heard.url)      # it is one address, and not in a file of ours
                links.dial(heard.url)
            except Error:       # of a transport that is not there, for example
                raise Refused("malformed") from None
            dial = links.dials.get(heard.url)
            if dial is not None:
                self.dials[heard.url] = dial

    def tick(self) -> None:
        """Each second or so: give up addresses where no node has answered."""
        now = time.monotonic()
        for url, dial in list(self.dials.items()):
            if linked(dial):
                del self.dials[url]
            elif dial.done or now - dial.since > GIVE_UP:
                del self.dials[url]
                self.node.links.hang_up(dial)
        if self._company and not self.node.directory.members and "call" in self._cancel:
            self._cancel.pop("call")()      # alone again: do not wait for the next call
            self._call()


def linked(dial: Any) -> bool:
    return dial.link is not None and dial.link.member is not None


class Bucket:
    """A token bucket of a second's worth."""

    def __init__(self, rate: float) -> None:
        self.rate = self.level = rate
        self.at = time.monotonic()

    def take(self, now: float) -> bool:
        self.level = min(self.rate, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level < 1:
            return False
        self.level -= 1
        return True
