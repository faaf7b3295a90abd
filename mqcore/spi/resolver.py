"""The plug-in interface of resolvers: names that stand for a changing set of endpoints.

A resolver gets the address of a URL ("dns://host:5555": scheme "dns", address "host:5555") and
returns the URLs that it currently stands for. `connect()` keeps a connection to each of them and
follows the set: it connects to new URLs and disconnects from removed ones. The core does all of
that; a resolver only looks up. `dns.py` and `file.py` of `mqcore/resolvers/` are examples, and the
README.md beside them explains how to write one.

An entry point of the group `mqcore.resolvers` names an object with the attributes below. Derive
from `Resolver` to get the defaults. The object is imported on first use of its scheme. All contexts
and threads share it, so it keeps no state. A scheme that both a transport and a resolver claim is
refused.

Callers and threads:

    check      the caller of connect(); never blocks, performs no look-up
    watch      the control thread, before each look-up while nothing is watched; never blocks
    may_block  the control thread; never blocks
    look_up    a short-lived worker if may_block() is true, else the control thread; for one
               endpoint never concurrently
    look_up_part   a worker, for the seeds of a cluster
    Watch      the control thread; never blocks

`address` is the decoded text between "://" and "?". `options` maps every option's name to its
checked value, including `refresh` and the resolver's own. Errors: AddressError (position within
`address`) from check; OSError or any mqcore.Error from look_up. If a look-up raises, or returns a
URL that cannot be connected to, the socket emits an event (`ResolveFailed`) and keeps the last good
set. The next look-up follows after the pauses of a connector (`reconnect`, `reconnect_max`). An
empty result is valid: no endpoint exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from mqcore.options import FAR, LINK, Option

RESOLVER_ABI = 1

Options = Mapping[str, Any]

#: the option that every resolver has
REFRESH = Option("refresh", "seconds", "s", 30.0, (0.1, FAR), "only when the watch fires", LINK,
                 (), "resolvers (dns://, file://): time from one result to the next look-up")


class Watch(Protocol):
    """A descriptor that becomes readable when a look-up is worthwhile: inotify, an eventfd that a
    thread of the resolver writes, a connection to a name service."""

    def fileno(self) -> int:
        """Non-blocking, close-on-exec, the same until close()."""

    def read(self) -> bool:
        """The descriptor is readable: read everything. Return True to look up now. OSError ends the
        watch: it is closed, and watch() is called for a new one."""

    def close(self) -> None:
        """Called once; also in a forked child, where it must only close the descriptor."""


class Resolver:
    abi: ClassVar[int] = RESOLVER_ABI
    scheme: ClassVar[str] = ""  # must be the entry point's name
    doc: ClassVar[str] = ""  # one line for `mq info`
    #: rows of its own options: (name, type, default, doc); types: options.PLUGIN_TYPES
    options: ClassVar[tuple[tuple[str, str, Any, str], ...]] = ()

    def check(self, address: str) -> None:
        """Check that the address is well formed. AddressError if not."""

    def may_block(self, address: str) -> bool:
        """Whether look_up() may wait for a server or a disk and must leave the control thread."""
        return True

    def look_up(self, address: str, options: Options) -> Iterable[str]:
        """The URLs that the address currently stands for, in the order in which to connect. Each is
        a transport's URL and may have a query. Duplicates count once."""
        raise NotImplementedError

    def look_up_part(self, address: str, options: Options) -> tuple[list[str], str]:
        """look_up() for a caller that needs one URL of several. Where some are wrong, it returns
        the others, and what is wrong."""
        return list(self.look_up(address, options)), ""

    def watch(self, address: str, options: Options) -> Watch | None:
        """Start watching for changes. None or OSError: only `refresh` triggers look-ups."""
        return None
