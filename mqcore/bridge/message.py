"""Message: what a source hands to a target, whatever system it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KEY = "mq-key"                  # the header that carries the key where a system has no keys
TOMBSTONE = "kafka-tombstone"   # the header of a message whose value is null; its body is empty
REDELIVERED = "mq-redelivered"  # and the one for a message that was delivered before


@dataclass(slots=True)
class Message:
    """One message on its way through a bridge.

    body: bytes. key: messages with one key stay in order. headers: names and values; a name may
    occur several times. address: the subject, topic or queue it came from. id: the same whenever
    the source delivers it again, and no other message's. stamp: (producer, sequence), where the
    source counts its messages by one; targets that deduplicate use it. time: seconds since the
    epoch. fault: why the source could not read it; it becomes a dead letter. token: what the source
    needs to acknowledge it.
    """

    body: bytes
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    address: str = ""
    id: str | None = None
    stamp: tuple[int, int] | None = None
    redelivered: bool = False
    time: float | None = None
    fault: str = ""
    token: Any = None
    generation: int = 0         # of the source's connection; the runner's
    size: int = 0               # of the body as it was received; the runner's

    def header(self, name: str) -> bytes | None:
        """The first header of that name, upper and lower case alike."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


def text_of(value: bytes) -> str:
    """A header value for a system whose headers are text. What is no UTF-8, and control characters,
    which could end a line of headers, are escaped."""
    text = value.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
