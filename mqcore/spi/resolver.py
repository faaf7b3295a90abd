"""The fourth door, a small one: names that stand for a changing set of endpoints.

A resolver gets the address of a URL ("dns://host:5555": scheme "dns", address "host:5555") and says
which URLs it stands for now. `connect()` then keeps a connection to each of them and follows the
set: new ones are connected, vanished ones disconnected. The core does all of that; a resolver only
looks up. `dns.py` and `file.py` of `mqcore/resolvers/` are the models, the README.md beside them
walks through one.

An entry point of the group `mqcore.resolvers` names an object with the attributes below; deriving
from `Resolver` is the easy way, and gives the defaults. It is imported when its scheme is first
used. The object is shared by all contexts and threads: it keeps no state of its own. A scheme is a
transport's or a resolver's; one that both claim is refused.

Who calls what, on which thread, may it block:

    check      the caller of connect(); never blocks, looks nothing up
    watch      the control thread, before a look-up as long as there is no watch; never blocks
    may_block  the control thread; never blocks
    look_up    a short-lived worker if may_block() said so, else the control thread; for one
               endpoint never twice at once
    Watch      all of it on the control thread; never blocks

`address` is the decoded text between "://" and "?"; `options` maps every option's name to its clean
value, `refresh` and the resolver's own among them. Errors: AddressError (position within `address`)
from check; OSError or any mqcore.Error from look_up. A look-up that raises, or whose answer holds
something that cannot be connected to, is told as an event (`ResolveFailed`), the last good set
stays, and the next look-up comes after the pauses of a connector (`reconnect`, `reconnect_max`). An
empty answer is an answer: nobody is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from mqcore.options import FAR, LINK, Option

RESOLVER_ABI = 1

Options = Mapping[str, Any]

#: the option that every resolver has
REFRESH = Option("refresh", "seconds", "s", 30.0, (0.1, FAR), "only when told of a change", LINK,
                 (), "dns://, file:// and the like: from one answer to the next look-up")


class Watch(Protocol):
    """A descriptor that becomes readable when a look-up is worth while: inotify, an eventfd that a
    thread of the resolver writes, a connection to a name service."""

    def fileno(self) -> int:
        """Non-blocking, close-on-exec, the same until close()."""

    def read(self) -> bool:
        """The descriptor is readable: read all that is there. True: look up now. OSError: the watch
        is over; it is closed, and watch() is asked for a new one."""

    def close(self) -> None:
        """Called once; also in a forked child, where it may only close the descriptor."""


class Resolver:
    abi: ClassVar[int] = RESOLVER_ABI
    scheme: ClassVar[str] = ""  # must be the entry point's name
    doc: ClassVar[str] = ""  # one line for `mq info`
    #: rows of its own options: (name, type, default, doc); types: options.PLUGIN_TYPES
    options: ClassVar[tuple[tuple[str, str, Any, str], ...]] = ()

    def check(self, address: str) -> None:
        """Is the address well formed? AddressError if not."""

    def may_block(self, address: str) -> bool:
        """Must look_up() leave the control thread, because it may wait for a server or a disk?"""
        return True

    def look_up(self, address: str, options: Options) -> Iterable[str]:
        """The URLs that the address stands for now, in the order in which they are connected. Each
        is a transport's, with a query of its own if it likes; doubled ones count once."""
        raise NotImplementedError

    def watch(self, address: str, options: Options) -> Watch | None:
        """Begin to watch for changes. None or OSError: there is only `refresh`."""
        return None
