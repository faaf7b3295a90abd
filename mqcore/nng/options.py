"""Options as attributes, as nng has them: milliseconds, -1 for ever, sizes with 0 for no limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.nng.exceptions import InvalidOperation, NNGException, NotSupported, ReadOnly, make

BUFFER_MAX = 8192  # messages, nng's limit
HOPS_MAX = 15
EVER = 1e9  # seconds, the most that mqcore takes: 31 years


class Option:
    """One option of a socket, dialer, listener or pipe. Without `write` it refuses as nng does."""

    def __init__(self, doc: str, read: Callable[[Any], Any],
                 write: Callable[[Any, Any], None] | None = None,
                 refused: type[NNGException] = ReadOnly) -> None:
        self.__doc__ = doc
        self._read = read
        self._write = write
        self._refused = refused
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else self._read(owner)

    def __set__(self, owner: Any, value: Any) -> None:
        if self._write is None:
            raise make(self._refused, f"{self._name} cannot be set")
        self._write(owner, value)


def _getopt_string(owner: Any, option: str) -> str:
    """An option that is text, by nng's name ("socket-name", "url")."""
    name = {"socket-name": "name", "protocol-name": "protocol_name"}.get(option, option)
    value = getattr(owner, name, None)
    if not isinstance(value, str):
        raise make(NotSupported, f"there is no option {option!r} that is text")
    return value


def absent(name: str, why: str) -> Option:
    """One that this object never has."""

    def refuse(owner: Any) -> Any:
        raise make(NotSupported, f"{name}: {why}")

    return Option(f"Not supported: {why}.", refuse, lambda owner, value: refuse(owner))


def whole(value: Any) -> int:
    """What is given for a number; ValueError for what is none."""
    if isinstance(value, str):
        return int(value)
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def seconds(value: Any) -> float | None:
    """Milliseconds as mqcore has them; negative: for ever."""
    number = whole(value)
    return None if number < 0 else number / 1000


def milliseconds(value: float | None) -> int:
    return -1 if value is None or value >= EVER else round(value * 1000)


def survey_time(value: Any) -> float:
    """seconds() for mqcore's option, which always has some."""
    found = seconds(value)
    return EVER if found is None else found


def pause(value: Any) -> float:
    """A pause between attempts; mqcore's shortest is a millisecond."""
    return max(0.001, seconds(value) or 0.0)


def buffer(value: Any, least: int = 0) -> int:
    """The length of a queue."""
    number = whole(value)
    if not least <= number <= BUFFER_MAX:
        raise make(InvalidOperation, f"a buffer has {least} to {BUFFER_MAX} messages, "
                                     f"not {number}")
    return number


def size(value: Any) -> int | None:
    """The longest message; None: no limit."""
    number = whole(value)
    if number < 0:
        raise OverflowError("a size is not negative")
    return number or None


def hops(value: Any) -> int:
    number = whole(value)
    if not 1 <= number <= HOPS_MAX:
        raise make(InvalidOperation, f"ttl_max is 1 to {HOPS_MAX}, not {number}")
    return number
