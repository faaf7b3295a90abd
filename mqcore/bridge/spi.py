"""The contract of a bridge: a Plugin that opens a Source, a Target or both.

A bridge is one small file over a system's client. All methods run in one asyncio event loop, in the
bridge's own thread. Nothing here retries: a method raises, and the runner closes the side, waits,
opens it again and repeats. The runner also owns back-pressure, order, counters and dead letters.

    class Example(Plugin):
        name = "example"                    # example://host/...
        doc = "an example"
        settings = (Setting("queue", "text", "", "the queue"),)

        def source(self, at):
            return ExampleSource(at)

    plugin = Example()

    [project.entry-points."mqcore.bridges"]
    example = "my_package.example:plugin"
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from mqcore.errors import NotSupported, UsageError

if TYPE_CHECKING:
    from mqcore.bridge.address import Address
    from mqcore.bridge.message import Message

BRIDGE_ABI = 1


class Setting(NamedTuple):
    """One setting in the query of a bridge's URL. type: "text", "int", "float", "bool" or "list"
    (may be repeated)."""

    name: str
    type: Literal["text", "int", "float", "bool", "list"]
    default: Any
    doc: str


class Side:
    """What a source and a target share."""

    # what a lost connection or a system that is away raises; anything else ends the bridge
    transient: tuple[type[BaseException], ...] = (OSError,)
    keyed: ClassVar[bool] = False       # messages have a key of their own, not in a header
    headed: ClassVar[bool] = True       # messages have headers

    async def open(self) -> None:
        """Connect. The runner closes the side first if it was open."""

    async def close(self) -> None:
        """Disconnect; also after an open() that failed halfway. Messages that were not acknowledged
        go back to the system. Called at any time, and more than once."""

    def explain(self) -> str:
        """What it is connected to, in one line without passwords."""
        raise NotImplementedError

    def place(self) -> tuple[object, ...] | None:
        """What it reads from or writes to, to be compared. None: unknown."""
        return None


class Source(Side):
    """Where messages come from."""

    acknowledges: ClassVar[bool] = True     # False: what the bridge holds is lost with its process

    def reads(self, target: Target) -> bool:
        """Whether it reads what this target writes. Such a bridge would go in a circle, and is
        refused. A source with wildcards overrides it."""
        place = self.place()
        return place is not None and place == target.place()

    async def receive(self, most: int) -> list[Message]:
        """1 to `most` messages, in order. Waits for the first only. May be cancelled while it
        waits, without losing a message."""
        raise NotImplementedError

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """The target has taken these messages. They are of this connection, in the order in which
        receive() returned them, and none is left out. Runs beside a receive()."""


class Target(Side):
    """Where messages go to."""

    confirms: ClassVar[bool] = True         # False: send() cannot know that a message arrived
    deduplicates: bool = False              # by Message.stamp or Message.id
    follows: bool = False                   # it writes to each message's own address
    at_once: int | None = None              # messages of one send() at most, if it wants few

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        """Store or deliver these messages in this order. Returns when the system has confirmed
        them. The result has the messages that it refuses for good, by index (too large, no such
        topic, malformed); they become dead letters. Raises if the connection is lost. Then all are
        sent again. If the exception has an attribute `taken`, the first so many are stored and are
        not sent again. It may be cancelled."""
        raise NotImplementedError


class Plugin:
    """A bridge as its entry point names it."""

    abi = BRIDGE_ABI
    name: str = ""
    doc: str = ""
    form: str = ""                      # its URLs, for the documentation
    settings: tuple[Setting, ...] = ()
    passes: bool = False                # unknown settings stay in the URL
    modes: tuple[str, ...] = ()         # NAME+MODE:, the first is the default

    def source(self, at: Address) -> Source:
        raise UsageError(f"{self.name} is no source of a bridge", hint="it can be a target")

    def target(self, at: Address) -> Target:
        raise UsageError(f"{self.name} is no target of a bridge", hint="it can be a source")


def need(module: str, extra: str) -> Any:
    """Import a client library, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise NotSupported(f"this bridge needs the package {module.partition('.')[0]} ({cause})",
                           hint=f'pip install "mqcore[{extra}]"') from cause


async def arrived(answer: asyncio.Future[Any], lost: asyncio.Future[Any]) -> bool:
    """Wait until one of them is done. False: the connection was lost, and no answer came."""
    if not answer.done():
        await asyncio.wait([answer, lost], return_when=asyncio.FIRST_COMPLETED)
    return answer.done()
