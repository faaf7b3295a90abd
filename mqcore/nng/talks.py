"""Sending and receiving: what sockets and contexts have in common; and Context."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import mqcore as mq
from mqcore.nng.exceptions import Closed, make, translated
from mqcore.nng.lines import Line
from mqcore.nng.pipes import Message, Pipe

if TYPE_CHECKING:
    from mqcore.nng.socket import Socket

Some = TypeVar("Some", bound="Talks")


def checked(data: Any) -> Any:
    """What may be sent: bytes or another buffer."""
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        raise ValueError("a message is bytes, not str; encode the text first (.encode())")
    return memoryview(data)


class Talks:
    """Sending and receiving, which sockets and contexts have in common."""

    _line: Line

    def __enter__(self: Some) -> Some:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError

    def _owner(self) -> Socket:
        raise NotImplementedError

    def _failed(self, error: mq.Error, block: bool = True) -> Exception:
        return translated(error, block)

    def _send(self, data: Any, block: bool, pipe: Pipe | None = None) -> None:
        try:
            self._line.send(checked(data), ... if block else 0, pipe.pipe if pipe else None)
        except mq.Error as error:
            raise self._failed(error, block) from error
        finally:
            self._owner()._sent()

    async def _asend(self, data: Any, pipe: Pipe | None = None) -> None:
        try:
            await self._line.asend(checked(data), ..., pipe.pipe if pipe else None)
        except mq.Error as error:
            raise self._failed(error) from error
        finally:
            self._owner()._sent()

    def _recv(self, block: bool) -> bytes:
        try:
            return self._line.recv(... if block else 0)
        except mq.Error as error:
            raise self._failed(error, block) from error

    def _recv_msg(self, block: bool) -> Message:
        try:
            return self._received(self._line.recv_msg(... if block else 0))
        except mq.Error as error:
            raise self._failed(error, block) from error

    async def arecv(self) -> bytes:
        """recv(), awaitable on asyncio and trio."""
        try:
            return await self._line.arecv(...)
        except mq.Error as error:
            raise self._failed(error) from error

    async def arecv_msg(self) -> Message:
        """recv_msg(), awaitable."""
        try:
            return self._received(await self._line.arecv_msg(...))
        except mq.Error as error:
            raise self._failed(error) from error

    def _received(self, message: mq.Message) -> Message:
        peer = message.peer
        return Message(bytes(message), None if peer is None else self._owner()._pipe_of(peer))

    async def asend(self, data: Any) -> None:
        """send(), awaitable."""
        await self._asend(data)

    def _send_msg(self, msg: Message, block: bool) -> None:
        msg._use()
        try:
            self._send(msg.bytes, block, msg.pipe)
        except BaseException:
            msg._give_back()
            raise

    async def asend_msg(self, msg: Message) -> None:
        """send_msg(), awaitable."""
        msg._use()
        try:
            await self._asend(msg.bytes, msg.pipe)
        except BaseException:
            msg._give_back()
            raise


class Context(Talks):
    """A line of its own over a socket's connections: as many questions at once as contexts."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        try:
            self._line = socket._new_line()
        except mq.Error as error:
            raise translated(error) from error
        self._closed = False

    @property
    def context(self) -> Any:
        """What of mqcore's is behind it."""
        return self._line.at

    def _owner(self) -> Socket:
        return self._socket

    def _failed(self, error: mq.Error, block: bool = True) -> Exception:
        if self._closed:  # while it waited
            return make(Closed, "the context is closed")
        return super()._failed(error, block)

    def _open(self) -> None:
        if self._closed:
            raise make(Closed, "the context is closed")

    def send(self, data: Any) -> None:
        """Ask, or answer what was received last."""
        self._open()
        self._send(data, True)

    def recv(self) -> bytes:
        """An answer, or a question."""
        self._open()
        return self._recv(True)

    def send_msg(self, msg: Message) -> None:
        """send() of a Message."""
        self._open()
        self._send_msg(msg, True)

    def recv_msg(self) -> Message:
        """recv() that gives a Message."""
        self._open()
        return self._recv_msg(True)

    async def arecv(self) -> bytes:
        """recv(), awaitable."""
        self._open()
        return await super().arecv()

    async def arecv_msg(self) -> Message:
        """recv_msg(), awaitable."""
        self._open()
        return await super().arecv_msg()

    async def asend(self, data: Any) -> None:
        """send(), awaitable."""
        self._open()
        await super().asend(data)

    async def asend_msg(self, msg: Message) -> None:
        """send_msg(), awaitable."""
        self._open()
        await super().asend_msg(msg)

    def close(self) -> None:
        """Give up what it waits for. Idempotent."""
        if not self._closed:
            self._closed = True
            if not self._socket._core.closed:
                self._line.close()
