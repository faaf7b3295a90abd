"""Finds bridges by their entry points, mqcore.bridges."""

from __future__ import annotations

from mqcore import _unknown as unknown
from mqcore.bridge.address import name_of, parse
from mqcore.bridge.spi import BRIDGE_ABI, Plugin, Source, Target
from mqcore.errors import UnknownTransport
from mqcore.spi.registry import Registry

_bridges = Registry("bridge", "mqcore.bridges", BRIDGE_ABI)


def names() -> tuple[str, ...]:
    """The names of all bridges that are installed."""
    return _bridges.known()


def plugin(name: str) -> Plugin:
    """The bridge of this name. UnknownTransport, PluginError."""
    try:
        found: Plugin = _bridges.find(name)
    except KeyError:
        known = _bridges.known()
        raise UnknownTransport(f"no bridge {name!r} is installed", known=known,
                               hint=unknown.nearest(name, known)) from None
    return found


def source(text: str | Source) -> Source:
    """The source at this address; it is not open yet."""
    if isinstance(text, Source):
        return text
    found = plugin(name_of(text)[0])
    return found.source(parse(text, found))


def target(text: str | Target) -> Target:
    """The target at this address; it is not open yet."""
    if isinstance(text, Target):
        return text
    found = plugin(name_of(text)[0])
    return found.target(parse(text, found))
