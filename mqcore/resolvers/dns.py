"""dns://host:port: every address of a name, each as its own peer: tcp://ADDRESS:port.

tcp:// with a name connects to one of its addresses, the first that works. dns:// connects to all of
them, for a name that stands for a group of servers. The system resolves the name (getaddrinfo:
hosts file, name servers). It does not report how long the result is valid, so the name is resolved
again every `refresh` seconds. A name that is unknown or has no address is a failed look-up and
changes nothing, because name servers fail more often than whole groups disappear.

A machine with IPv4 and IPv6 addresses counts as two peers. `?family=4` or `?family=6` makes it one.
"""

from __future__ import annotations

import errno

from mqcore.base.native import socket
from mqcore.errors import AddressError
from mqcore.spi.inet import host_port, look_up, parse
from mqcore.spi.resolver import Options, Resolver
from mqcore.spi.url import render

FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


class Dns(Resolver):
    scheme = "dns"
    doc = "all addresses of a host name, as tcp"
    options = (("family", "int", 0, "dns://: 4 or 6 takes only addresses of IPv4 or of IPv6"),)

    def check(self, address: str) -> None:
        source, _ = parse(address, "connect")
        if source is not None:
            raise AddressError("dns:// takes no source address",
                               position=address.index(";"))

    def may_block(self, address: str) -> bool:
        return parse(address, "connect")[1].may_block

    def look_up(self, address: str, options: Options) -> list[str]:
        wanted = FAMILIES.get(options["family"])
        found = look_up(parse(address, "connect")[1])
        urls = [render("tcp", host_port(sockaddr)) for family, sockaddr in found
                if wanted in (None, family)]
        if not urls:
            raise OSError(errno.ENOENT, f"it has no address of IPv{options['family']}")
        return urls


resolver = Dns()
