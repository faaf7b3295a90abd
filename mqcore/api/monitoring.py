"""Finds the monitor of a context, which lies above this layer, by its entry point.

The group `mqcore.monitors` has one name, `agent`: a callable that takes the context and what
`Context(monitor=)` said, and returns an object with `close()` and `leave()`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mqcore.base.described import described
from mqcore.errors import Error, NotSupported
from mqcore.spi.installed import entry_points

if TYPE_CHECKING:
    from mqcore.api.context import Context

VARIABLE = "MQCORE_MONITOR"
OFF = ("", "0", "off", "no", "false")
ON = ("1", "on", "yes", "true")
_log = logging.getLogger("mqcore.monitor")


def attach(context: Context, wanted: Any) -> Any:
    """The agent of this context, or None. An error is raised if the program asked for a monitor,
    and logged if only the environment did: the program itself is not at fault."""
    if wanted is False:
        return None
    if wanted is not None:
        return _maker()(context, wanted)
    said = os.environ.get(VARIABLE, "")
    if said.lower() in OFF:
        return None
    if said.lower() not in ON and not said.startswith("/"):
        _warn(f"{VARIABLE}={said} has no effect: it is neither 1 nor an absolute path")
        return None
    try:
        return _maker()(context, True)
    except Exception as error:
        text = str(error) if isinstance(error, (Error, OSError)) else described(error)
        _warn(f"{VARIABLE}={said} has no effect: {text}")
        return None


@functools.lru_cache(maxsize=64)
def _warn(text: str) -> None:
    """Once: a program may make any number of contexts."""
    with suppress(Exception):       # of a handler: the variable is not the program's own
        _log.warning("%s", text)


def asked() -> bool:
    """Whether the environment wants this process to be monitored."""
    return os.environ.get(VARIABLE, "").lower() not in OFF


@functools.cache
def _maker() -> Callable[[Context, Any], Any]:
    for point in entry_points("mqcore.monitors"):
        if point.name != "agent":
            continue
        try:
            maker: Callable[[Context, Any], Any] = point.load()
            return maker
        except ImportError as error:
            raise NotSupported(f"a monitored context needs {error.name}",
                               hint='pip install "mqcore[monitor]"') from error
    raise NotSupported("this installation of mqcore has no monitor", hint="install it again")
