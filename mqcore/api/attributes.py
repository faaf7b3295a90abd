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
    """One option as an attribute: reads the present value, checks what is assigned."""

    def __init__(self, name: str, doc: str = "") -> None:
        self.name = name
        self.__doc__ = doc or type(self).__doc__

    def __get__(self, sock: Any, owner: Any = None) -> Any:
        if sock is None:
            return self
        try:
            return sock._options[self.name]
        except KeyError:  # a transport's, which has not been set
            return next(row.default for row in registry.link_options() if row.name == self.name)

    def __set__(self, sock: Any, value: Any) -> None:
        sock._set_option(self.name, value)


def add_options(cls: type, names: Iterable[str]) -> None:
    for name in names:
        row = table.CORE.get(name)
        setattr(cls, name, OptionAttr(name, row.doc if row is not None else ""))
