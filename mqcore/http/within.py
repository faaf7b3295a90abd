"""A time limit for what seldom waits: the timer is made when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[Any, Any, T]


@coroutine
def within(seconds: float, work: Awaitable[T]) -> Steps[T]:
    """Await `work`. Raises TimeoutError, as asyncio.timeout() does, so many seconds after it has
    begun to wait."""
    steps = work.__await__()
    try:
        waits_for = steps.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    return (yield from _limited(seconds, steps, waits_for).__await__())


async def _limited(seconds: float, steps: Steps[T], waits_for: Any) -> T:
    async with asyncio.timeout(seconds):
        return await _rest(steps, waits_for)


@coroutine
def _rest(steps: Steps[T], waits_for: Any) -> Steps[T]:
    """The steps from the first wait on, for what they have given to wait for."""
    try:
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(value)
    except StopIteration as done:
        found: T = done.value
        return found
