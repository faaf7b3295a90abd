"""Radio and Dish (RFC 48): messages of one part to named groups, over udp:// too."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn

from mqcore.api.pubsub import _Chooser, _Publisher
from mqcore.binding.arguments import several
from mqcore.errors import NotSubscribed, UsageError

GROUP_MAX = 255  # bytes: a datagram stores the length in one byte


def _group(group: Any) -> bytes:
    if isinstance(group, str):
        raw = group.encode("utf-8", "surrogateescape")
    else:
        try:
            raw = bytes(memoryview(group))
        except TypeError:
            raise UsageError(
                f"a group must be str or bytes, not {type(group).__name__}") from None
    if len(raw) > GROUP_MAX:
        raise UsageError(f"a group has at most {GROUP_MAX} bytes, not {len(raw)}")
    return raw


class Radio(_Publisher):
    """Sends each message to all peers that joined its group (RFC 48), over udp:// to every
    listener. Messages have one part."""

    __slots__ = ()
    _pattern = "radio"

    def send(self, data: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """Send a message to a group: text, or at most 255 bytes. Never waits, except with
        nodrop."""
        super().send_parts((_group(group), data), timeout=timeout)

    def send_parts(self, parts: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """send() of a list with one part. UsageError for more: RADIO messages have one part."""
        super().send_parts(_grouped(_group(group), _sequence(parts)), timeout=timeout)

    def send_many(self, messages: Iterable[Any], *, group: Any = "", timeout: Any = ...) -> int:
        """Send each of `messages` to one group. Returns their number."""
        raw = _group(group)
        messages = several("send_many() takes several messages", messages, False)
        return int(super().send_many((_grouped(raw, one) for one in messages), timeout=timeout))

    def send_batch(  # type: ignore[override]  # a group instead of a second part
            self, data: Any, offsets: Any, *, group: Any = "", timeout: Any = ...) -> int:
        """Send data[offsets[i]:offsets[i+1]] for each i to one group. Returns their number."""
        return int(self._send_batch(data, offsets, timeout, _group(group)))

    def send_ref(self, data: Any, *, group: Any = "", timeout: Any = ...) -> Any:
        """send() without copying. Do not change the buffer until the returned Pinned is done."""
        return self._send_ref(data, timeout, _group(group))

    async def asend(self, data: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """send(), awaitable."""
        await self._asend((_group(group), data), False, timeout)

    async def asend_parts(self, parts: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """send_parts(), awaitable."""
        await self._asend(_grouped(_group(group), _sequence(parts)), False, timeout)

    async def asend_many(self, messages: Iterable[Any], *, group: Any = "",
                         timeout: Any = ...) -> int:
        """send_many(), awaitable."""
        raw = _group(group)
        return await super().asend_many((_grouped(raw, one) for one in messages), timeout=timeout)

    async def asend_batch(  # type: ignore[override]
            self, data: Any, offsets: Any, *, group: Any = "", timeout: Any = ...) -> int:
        """send_batch(), awaitable."""
        return await self._asend_batch(data, offsets, timeout,
                                       partial(self.send_batch, group=group))

    async def asend_ref(self, data: Any, *, group: Any = "", timeout: Any = ...) -> Any:
        """send_ref(), awaitable."""
        return await self._asend_ref(data, timeout, partial(self.send_ref, group=group))

    def wait_subscribers(self, group: Any = "", n: int = 1, timeout: Any = None) -> None:
        """Wait until n peers would receive a message to `group`. Over udp:// any connection
        counts."""
        super().wait_subscribers(_group(group), n, timeout)

    async def await_subscribers(self, group: Any = "", n: int = 1, timeout: Any = None) -> None:
        """wait_subscribers(), awaitable."""
        await super().await_subscribers(_group(group), n, timeout)


def _sequence(parts: Any) -> Any:
    return list(several("send_parts() takes a sequence of parts", parts, True))


def _grouped(raw: bytes, data: Any) -> tuple[bytes, Any]:
    if isinstance(data, (list, tuple)):
        if len(data) != 1:
            raise UsageError(f"a RADIO message has one part, not {len(data)}",
                             hint="pack several into one, or use a Pub")
        data = data[0]
    return raw, data


class Dish(_Chooser):
    """Receives messages of the groups that it joined (RFC 48). recv() returns the body, recv_msg()
    a Message with its group."""

    __slots__ = ()
    _pattern = "dish"
    _given = "groups"

    def __init__(self, *, groups: Iterable[Any] = (), bind: Any = (), connect: Any = (),
                 **kw: Any) -> None:
        super().__init__(groups, bind, connect, kw)

    @staticmethod
    def _name(one: Any) -> bytes:
        return _group(one)

    def join(self, *groups: Any) -> None:
        """Join these groups: text, or at most 255 bytes each. Joins are counted: leave a group as
        many times as you joined it."""
        self._want([_group(group) for group in groups])

    def leave(self, *groups: Any) -> None:
        """Undo one join() of each group. NotSubscribed if there is none."""
        self._unwant([_group(group) for group in groups])

    @property
    def groups(self) -> tuple[str, ...]:
        """The joined groups, each once, in order. Bytes that are not UTF-8 appear as surrogates."""
        return tuple(raw.decode("utf-8", "surrogateescape") for raw in list(self._wanted))

    def _unknown(self, raw: bytes, known: str) -> NoReturn:
        raise NotSubscribed(f"the group {raw!r} is not joined", hint=f"joined: {known}")
