"""Options as attributes of sockets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqcore import options as table
from mqcore.spi import registry

#: options of the built-in transports, filters and resolvers, which are loaded only when needed
LINK_OPTIONS = (
    "ring", "peer_uid", "spin", "multicast_hops", "multicast_loop", "tls_cert", "tls_key",
    "tls_key_password", "tls_ca", "tls_verify", "tls_hostname", "tls_mutual", "tls_min_version",
    "tls_context", "origin", "subprotocol", "refresh", "nameserver", "family",
    "key", "seeds")


class OptionAttr:
    """One option as an attribute. Reading returns the current value; assigning checks the new one.
    Its docstring is the option's row."""

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self.pattern = pattern

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return table.describe(self._row())

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
        except KeyError:  # an unset option of a transport
            return self._row().default

    def __set__(self, sock: Any, value: Any) -> None:
        sock._set_option(self.name, value)


def add_options(cls: Any, names: Iterable[str]) -> None:
    for name in names:
        setattr(cls, name, OptionAttr(name, cls._pattern))
