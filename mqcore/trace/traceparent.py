"""TraceContext: the identity of a trace, of a span in it, and what vendors add to them.

The grammar is that of W3C Trace Context level 1 (https://www.w3.org/TR/trace-context-1/).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import Self

from mqcore.errors import Error

LONGEST_STATE = 512     # characters of a tracestate; section 3.3.1.5 asks for at least that
LARGE_MEMBER = 128      # characters; longer members are the first to go
MEMBERS = 32            # of a tracestate
LONGEST = 4096          # characters of a header that is read at all
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-f]{16}")
_KEY = re.compile(r"[a-z][a-z0-9_\-*/]{0,255}"
                  r"|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}")
_VALUE = re.compile(r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


class TraceMalformed(Error, ValueError):
    """A header is not one of W3C Trace Context."""

    code = "trace_malformed"


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span of a trace, as it travels with a message.

    trace_id: 32 hexadecimal digits, the same in the whole trace. span_id: 16 digits. sampled: the
    spans of this trace are to be recorded; default True. state: the `tracestate`, data of tracing
    systems that mqcore passes on; default "". Raises TraceMalformed.
    """

    trace_id: str
    span_id: str
    sampled: bool = True
    state: str = field(default="")

    def __post_init__(self) -> None:
        if not isinstance(self.trace_id, str) or not _TRACE_ID.fullmatch(self.trace_id):
            raise TraceMalformed(f"trace_id={self.trace_id!r:.80}",
                                 hint="it has 32 digits of 0-9 and a-f, and is not all zeros")
        if not isinstance(self.span_id, str) or not _SPAN_ID.fullmatch(self.span_id):
            raise TraceMalformed(f"span_id={self.span_id!r:.80}",
                                 hint="it has 16 digits of 0-9 and a-f, and is not all zeros")
        if not isinstance(self.state, str) or len(self.state) > LONGEST_STATE:
            raise TraceMalformed(f"state= is not a text of up to {LONGEST_STATE} characters")
        if self.state:
            parse_state(self.state)

    @classmethod
    def new(cls, *, sampled: bool = True) -> Self:
        """The first span of a new trace, with random ids."""
        return cls(_random(16), _random(8), sampled)

    @classmethod
    def parse(cls, traceparent: str, tracestate: str = "") -> Self:
        """The context in these headers. A tracestate of more than 512 characters loses members, as
        section 3.3.1.5 describes. Raises TraceMalformed."""
        if not isinstance(traceparent, str) or not isinstance(tracestate, str):
            raise TraceMalformed("a header is not a text", hint="decode it first")
        if len(traceparent) > LONGEST:
            raise TraceMalformed(f"a traceparent of {len(traceparent)} characters")
        found = _PARENT.fullmatch(traceparent)
        # Version ff is forbidden. Version 00 has four fields; later ones may have more.
        if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
            raise TraceMalformed(f"{traceparent[:80]!r} is not a traceparent",
                                 hint="it is like 00-TRACE_ID-SPAN_ID-01")
        sampled = bool(int(found[4], 16) & 1)
        return cls(found[2], found[3], sampled, parse_state(tracestate))

    @property
    def traceparent(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def child(self) -> Self:
        """A span of the same trace with a new id."""
        return replace(self, span_id=_random(8))


def _random(size: int) -> str:
    while not any(data := os.urandom(size)):     # all zeros are not allowed
        pass
    return data.hex()


def parse_state(text: str) -> str:
    """A tracestate with its spaces and empty members removed, of at most 512 characters. Raises
    TraceMalformed."""
    if not text:
        return ""
    if len(text) > LONGEST:
        raise TraceMalformed(f"a tracestate of {len(text)} characters; {LONGEST} are read")
    members = [member for raw in text.split(",") if (member := raw.strip(" \t"))]
    if len(members) > MEMBERS:
        raise TraceMalformed(f"a tracestate of {len(members)} members; {MEMBERS} are allowed")
    keys = set()
    for member in members:
        key, equals, value = member.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key in keys:
            raise TraceMalformed(f"{member[:80]!r} is not a member of a tracestate",
                                 hint="members are key=value, and no key occurs twice")
        keys.add(key)
    return _bounded(members)


def _bounded(members: list[str]) -> str:
    """Without the large members, then the last ones, until it fits."""
    while len(text := ",".join(members)) > LONGEST_STATE:
        large = next((at for at in reversed(range(len(members)))
                      if len(members[at]) > LARGE_MEMBER), -1)
        del members[large]
    return text
