"""What the registry knows of a plug-in, whether it works or was refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NO_GAPS: Mapping[str, str] = MappingProxyType({})


class PluginInfo(NamedTuple):
    """One line of `mq info`. `refused` is the reason, "" for a plug-in that works."""

    kind: str  # "transport", "filter", "resolver", "pattern" or "strategy"
    name: str
    distribution: str
    version: str
    target: str  # "package.module:attribute"
    refused: str
    doc: str
    form: str = ""  # a transport's kind: "stream", "engine", "stack" or "inproc"
    gaps: Mapping[str, str] = NO_GAPS  # capabilities that a transport lacks, and why
    unavailable: str = ""  # why it cannot work on this system
