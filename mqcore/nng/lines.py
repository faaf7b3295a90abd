"""Lines: one exchange of a socket or of a context, with mqcore's socket behind it.

These classes define send and receive where nng and mqcore differ: a reply goes to the peer of the
last received message, and a request without a reply in time is over.
"""

from __future__ import annotations

from typing import Any

import mqcore as mq
from mqcore.nng.exceptions import BadState, NotSupported, make


class Line:
    """A pattern without order: as mqcore has it. `at` sends and receives: the socket or one of its
    contexts. Everything raises mqcore's errors, or BadState."""

    def __init__(self, core: Any, at: Any) -> None:
        self.core = core
        self.at = at

    def send(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        self.at.send(data, timeout=timeout)

    async def asend(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        await self.at.asend(data, timeout=timeout)

    def recv(self, timeout: Any) -> bytes:
        return self.at.recv(timeout=timeout)  # type: ignore[no-any-return]

    async def arecv(self, timeout: Any) -> bytes:
        return await self.at.arecv(timeout=timeout)  # type: ignore[no-any-return]

    def recv_msg(self, timeout: Any) -> mq.Message:
        return self.at.recv_msg(timeout=timeout)  # type: ignore[no-any-return]

    async def arecv_msg(self, timeout: Any) -> mq.Message:
        return await self.at.arecv_msg(timeout=timeout)  # type: ignore[no-any-return]

    def close(self) -> None:
        if self.at is not self.core:
            self.at.close()


class SubLine(Line):
    """A context of SUB: it only receives."""

    def send(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        raise make(NotSupported, "a Sub0 never sends")

    async def asend(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        self.send(data, timeout)


class ReplyLine(Line):
    """REP, RESPONDENT: send() answers the message received last. A second receive before the answer
    forgets the first, as nng does. The line is the message: no context of mqcore's is needed."""

    def __init__(self, core: Any) -> None:
        super().__init__(core, core)
        self.last: mq.Message | None = None

    def recv(self, timeout: Any) -> bytes:
        return bytes(self.recv_msg(timeout))

    async def arecv(self, timeout: Any) -> bytes:
        return bytes(await self.arecv_msg(timeout))

    def recv_msg(self, timeout: Any) -> mq.Message:
        self.last = self.at.recv_msg(timeout=timeout)
        return self.last

    async def arecv_msg(self, timeout: Any) -> mq.Message:
        self.last = await self.at.arecv_msg(timeout=timeout)
        return self.last

    def send(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        self.at._can()  # closed comes before out of order
        asked = self._take()
        try:
            asked.reply(data, timeout=timeout)
        except mq.NoSuchPeer:  # the requester has disconnected: drop the reply
            pass

    async def asend(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        self.at._can()
        asked = self._take()
        try:
            await asked.areply(data, timeout=timeout)
        except mq.NoSuchPeer:
            pass

    def _take(self) -> mq.Message:
        asked, self.last = self.last, None
        if asked is None:
            raise make(BadState, "there is nothing to answer; receive a question first")
        return asked


class AskLine(Line):
    """REQ, SURVEYOR: a receive that ends without an answer ends the question, too."""

    def recv(self, timeout: Any) -> bytes:
        try:
            return super().recv(timeout)
        except BaseException as error:
            self._over(error, timeout)
            raise

    async def arecv(self, timeout: Any) -> bytes:
        try:
            return await super().arecv(timeout)
        except BaseException as error:
            self._over(error, timeout)
            raise

    def recv_msg(self, timeout: Any) -> mq.Message:
        try:
            return super().recv_msg(timeout)
        except BaseException as error:
            self._over(error, timeout)
            raise

    async def arecv_msg(self, timeout: Any) -> mq.Message:
        try:
            return await super().arecv_msg(timeout)
        except BaseException as error:
            self._over(error, timeout)
            raise

    def _over(self, error: BaseException, timeout: Any) -> None:
        """Out of time or cancelled; a look that found nothing (timeout 0) changes nothing."""
        if timeout != 0 and not isinstance(error, mq.StateError) and not self.core.closed:
            self.at._abandon()


class PolyLine(Line):
    """PAIR1, one to many: each message to one peer."""

    def send(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        if peer is None:
            self.at.send(data, timeout=timeout)
            return
        try:
            self.at.send_to(peer, data, timeout=timeout)
        except mq.NoSuchPeer:  # as nng has it
            pass

    async def asend(self, data: Any, timeout: Any, peer: mq.Peer | None = None) -> None:
        if peer is None:
            await self.at.asend(data, timeout=timeout)
            return
        try:
            await self.at.asend_to(peer, data, timeout=timeout)
        except mq.NoSuchPeer:
            pass
