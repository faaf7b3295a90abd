"""The transport of a simulated network: sim://host/name. Installed while a Network exists."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

from mqcore.errors import AddressError, AddressInUse, BindError
from mqcore.spi.transport import Listening, Options, StreamTransport
from mqcore.testing.network.connections import USUAL, Door, Link

if TYPE_CHECKING:
    from mqcore.testing.network.world import Network


class SimTransport(StreamTransport):
    scheme = "sim"
    doc = "a simulated network, of mqcore.testing.network"
    options = (("sim_host", "object", None, "the Host on which the socket is", (object,)),)

    def __init__(self, net: Network) -> None:
        self.net = net
        self._connecting: dict[int, Link] = {}  # by descriptor, until finish()

    def check(self, address: str, role: str) -> None:
        host, _, name = address.partition("/")
        if not host or not name:
            raise AddressError("an address is a host and a name, as sim://a/orders",
                               position=len(host))

    def listen(self, address: str, options: Options) -> Listening:
        host = self._host(options)
        net = self.net
        if address.partition("/")[0] != host.name:
            raise BindError.of(errno.EADDRNOTAVAIL, f"cannot bind sim://{address} on host "
                               f"{host.name!r}", f"its addresses begin with sim://{host.name}/")
        if address in net._doors:
            raise AddressInUse(f"sim://{address} is bound already", errno=errno.EADDRINUSE)
        door = net._doors[address] = Door(host, options["backlog"])
        net._log("listen", address, 0)

        def release() -> None:
            del net._doors[address]
            net._log("unlisten", address, 0)

        return Listening((door.sock,), address, release)

    def connect(self, target: Any, options: Options) -> socket.socket:
        link = self.net._attempt(self._host(options), target)
        self._connecting[link.near.fileno()] = link
        return link.near

    def finish(self, sock: socket.socket) -> int:
        link = self._connecting.get(sock.fileno())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, USUAL)
        return link.error if link is not None else errno.ECONNRESET

    def names(self, sock: socket.socket) -> tuple[str, str]:
        link = self._connecting.get(sock.fileno())
        if link is None or link.near is not sock:
            return "sim://", "sim://"
        return f"sim://{link.client.name}", f"sim://{link.address}"

    def _host(self, options: Options) -> Any:
        host = options.get("sim_host")
        if host is None or host.net is not self.net:
            raise BindError("a sim:// address needs a socket of a simulated host",
                            hint='make it with net.host("a").socket(...)')
        return host
