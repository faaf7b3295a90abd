"""Awaitable twins of a reader's and a server's calls, for asyncio and trio.

Those of a folder run in a worker thread: a disk may take its time. A RemoteReader has its own,
which wait in the loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from mqcore.api.turns import fair
from mqcore.journal.records import until
from mqcore.journal.waiting import in_thread
from mqcore.journal.walking import apast, skips

if TYPE_CHECKING:
    from mqcore.journal.records import Records
    from mqcore.journal.store.commits import Expected


class Awaitable:
    """The async half of Reader."""

    async def afirst(self: Any) -> int:
        """`first`, awaitable."""
        found: int = await in_thread(lambda: self.first)
        return found

    async def aend(self: Any) -> int:
        """`end`, awaitable."""
        found: int = await in_thread(lambda: self.end)
        return found

    async def adurable(self: Any) -> int:
        """`durable`, awaitable."""
        found: int = await in_thread(lambda: self.durable)
        return found

    async def aat(self: Any, time: float) -> int:
        """at(), awaitable."""
        found: int = await in_thread(lambda: self.at(time))
        return found

    async def astored_bytes(self: Any, start: int, stop: int) -> int:
        """stored_bytes(), awaitable."""
        found: int = await in_thread(lambda: self.stored_bytes(start, stop))
        return found

    async def aread(self: Any, offset: int, *, max_bytes: int = 8 << 20,
                    durable: bool | None = None) -> Records:
        """read(), awaitable."""
        how: dict[str, Any] = {} if durable is None else {"durable": durable}
        found: Records = await in_thread(lambda: self.read(offset, max_bytes=max_bytes, **how))
        return found

    def abatches(self: Any, start: int | None = None, stop: int | None = None, *,
                 max_bytes: int = 8 << 20, durable: bool | None = None,
                 gaps: str = "raise") -> AsyncIterator[Records]:
        """batches(), awaitable."""
        skips(gaps)
        walk: AsyncIterator[Records] = self._abatches(start, stop, max_bytes, durable, gaps)
        return walk

    async def _abatches(self: Any, start: int | None, stop: int | None, max_bytes: int,
                        durable: bool | None, gaps: str) -> AsyncIterator[Records]:
        await fair()
        at = await self.afirst() if start is None else start
        end = await self.aend() if stop is None else stop
        async with aclosing(apast(lambda at: self._abetween(at, end, max_bytes, durable), at,
                                  gaps)) as found:
            async for records in found:
                yield records

    async def _abetween(self: Any, at: int, stop: int, max_bytes: int,
                        durable: bool | None) -> AsyncIterator[Records]:
        while at < stop:
            records = await self.aread(at, max_bytes=max_bytes, durable=durable)
            if not len(records) or records.first >= stop:
                return
            records = until(records, stop)
            at = records.next
            yield records

    async def acommitted_offset(self: Any, group: str) -> int | None:
        """committed(), awaitable."""
        found: int | None = await in_thread(lambda: self.committed_offset(group))
        return found

    async def acommit_offset(self: Any, group: str, offset: int, *,
                             expected: Expected = "any") -> None:
        """commit_offset(), awaitable."""
        await in_thread(lambda: self.commit_offset(group, offset, expected=expected))

    async def agroups(self: Any) -> dict[str, int]:
        """groups(), awaitable."""
        found: dict[str, int] = await in_thread(lambda: self.groups())
        return found

    async def aclose(self: Any) -> None:
        """close(), awaitable."""
        await in_thread(lambda: self.close())

    async def __aenter__(self: Any) -> Any:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AwaitableServer:
    """The async half of Server."""

    async def await_stopped(self: Any, timeout: float | None = None) -> None:
        """wait_stopped(), awaitable."""
        await in_thread(lambda: self.wait_stopped(timeout))

    async def astop(self: Any) -> None:
        """stop(), awaitable."""
        await in_thread(lambda: self.stop())
