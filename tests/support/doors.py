"""Plug-ins without a distribution, in the registry for as long as a test runs."""

import contextlib

from mqcore.spi import registry

GROUPS = {"transport": registry._transports, "filter": registry._filters,
          "resolver": registry._resolvers, "pattern": registry._patterns}


@contextlib.contextmanager
def plugged(kind, plugin):
    """`plugin` is found as if an entry point had named it."""
    group = GROUPS[kind]
    name = plugin.scheme if kind in ("transport", "resolver") else plugin.name
    judged = group._judge(name, "a test", "a test", plugin)
    assert judged is plugin, judged.error()
    group._loaded[name] = plugin
    try:
        yield plugin
    finally:
        del group._loaded[name]
        group._rows.pop(name, None)
