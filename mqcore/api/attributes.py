"""Options as attributes of sockets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqcore import options as table
from mqcore.spi import registry

#: the options of our own transports, filters and resolvers: these are loaded when they are needed
LINK_OPTIONS = (
    "ring", "peer_uid", "spin", "multicast_hops", "multicast_loop", "tls_cert", "tls_key",
    "tls_key_password", "tls_ca", "tls_verify", "tls_hostname", "tls_mutual", "tls_min_version",
    "tls_context", "origin", "subprotocol", "refresh", "family")


class OptionAttr:
    """One option as an attribute: reads the present value, checks what is assigned. help() of it
    prints the option's row."""

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self.pattern = pattern

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        row = self._row()
        unit = f" in {row.unit}" if row.unit and row.type != "seconds" else ""
        none = f"; None: {row.none}" if row.none and "None: " not in row.doc else ""
        return f"{row.name}: {row.type}{unit}, default {row.default!r}: {row.doc}{none}."

    def _row(self) -> Any:
        if self.name in LINK_OPTIONS:
            return next(row for row in registry.link_options() if row.name == self.name)
        rows = registry.pattern_options(self.pattern) if self.pattern else ()
        return table.table(rows)[self.name]

    def __get__(self, sock: Any, owner: Any = None) -> Any:
        if sock is None:
            return self
        try:
            return sock._options[self.name]
        except KeyError:  # a transport's, which has not been set
            return self._row().default

    def __set__(self, sock: Any, value: Any) -> None:
        sock._set_option(self.name, value)


def add_options(cls: Any, names: Iterable[str]) -> None:
    for name in names:
        setattr(cls, name, OptionAttr(name, cls._pattern))
