"""A time limit for what seldom waits: the timer is made when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Coroutine[Any, Any, T]


@coroutine
def within(seconds: float, work: Steps[T]) -> Generator[Any, Any, T]:
    """Await `work`. Raises TimeoutError, as asyncio.timeout() does, so many seconds after it has
    begun to wait."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    return (yield from _limited(seconds, work, waits_for).__await__())


async def _limited(seconds: float, work: Steps[T], waits_for: Any) -> T:
    async with asyncio.timeout(seconds):
        return await _rest(work, waits_for)


@coroutine
def _rest(work: Steps[T], waits_for: Any) -> Generator[Any, Any, T]:
    """`work` from its first wait on, for what it has given to wait for."""
    try:
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(value)
    except StopIteration as done:
        found: T = done.value
        return found
