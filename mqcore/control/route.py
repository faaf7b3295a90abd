"""Route: the filters and the transport of a URL's scheme.

    zstd+wss://host:443/path  ->  filters zstd, ws, tls; transport tcp; address host:443
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcore.errors import AddressError
from mqcore.options import Option
from mqcore.spi import registry
from mqcore.spi.url import Url, parse, render


class Route:
    """`filters` are (plug-in, its part of the address), outermost first. `address` is the rest of
    the URL's address, for the transport. AddressError refers to positions in the whole URL."""

    def __init__(self, url: Url, role: str) -> None:
        self.url = url
        self.role = role
        top = registry.transport(url.transport)
        names = list(url.filters)
        self.transport = top
        if top.kind == "stack":
            *below, last = top.below.split("+")
            names += below
            self.transport = registry.transport(last)
        if names and self.transport.kind != "stream":
            raise AddressError(f"{url.text!r}: filters need a byte stream, and "
                               f"{self.transport.scheme} is not one", position=0,
                               hint="leave them out, or use another transport")
        self.address = url.address
        self.filters: list[tuple[Any, Any]] = []
        try:
            for name in names:
                plugin = registry.filter(name)
                self.address, own = plugin.split(self.address, role)
                self.filters.append((plugin, own))
        except AddressError as error:
            raise url.locate(error) from None

    @classmethod
    def of(cls, transport: Any, where: Route | Url | str, role: str) -> Route:
        """Return a Route unchanged. A URL is converted for the given transport, without filters."""
        if isinstance(where, Route):
            return where
        route = cls.__new__(cls)
        route.url = parse(where) if isinstance(where, str) else where
        route.role, route.transport = role, transport
        route.address, route.filters = route.url.address, []
        return route

    def rows(self) -> tuple[Option, ...]:
        """The option rows of the transport and all filters."""
        rows = {row.name: row for row in registry.transport_options(self.transport.scheme)}
        for plugin, _ in self.filters:
            rows.update((row.name, row) for row in registry.filter_options(plugin.name))
        return tuple(rows.values())

    def check(self, options: Mapping[str, Any]) -> None:
        """Check everything that can be checked before the network is used."""
        try:
            self.transport.check(self.address, self.role)
            for plugin, own in self.filters:
                plugin.check(own, self.role, options)
        except AddressError as error:
            raise self.url.locate(error) from None

    def show(self, address: str) -> str:
        """The URL of a transport's address, as the user would write it."""
        for plugin, own in reversed(self.filters):
            address = plugin.join(address, own)
        return render(self.url.transport, address, self.url.filters)

    def sessions(self, options: Mapping[str, Any]) -> list[Any]:
        """The filter sessions of one connection, outermost first."""
        opened: list[Any] = []
        try:
            for plugin, own in self.filters:
                opened.append(plugin.open(own, self.role, options))
        except BaseException:
            for session in opened:
                session.close()
            raise
        return opened
