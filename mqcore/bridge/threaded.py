"""Sides over clients whose calls block: these run in daemon threads. A call that never returns
keeps neither the bridge nor the program from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from mqcore.base.threads import Thread
from mqcore.base.waits import Condition
from mqcore.bridge.spi import Side

IDLE = 0.2      # seconds without a call after which a thread ends
Job = Callable[[], Callable[[], object]]    # it returns what tells its caller


class Worker:
    """A thread for one call after the other; between two of them it is one of `idle`. A thread for
    each call would have to wait for the GIL before it begins."""

    def __init__(self, idle: list[Worker], job: Job) -> None:
        self._idle = idle
        self._came = Condition()
        self._job: Job | None = job
        self._ended = False
        Thread(self._run, "mqcore-bridge").start()

    def give(self, job: Job) -> bool:
        """False: it has ended meanwhile."""
        with self._came:
            if not self._ended:
                self._job = job
                self._came.notify_all()
            return not self._ended

    def _run(self) -> None:
        while True:
            with self._came:
                if not self._came.wait_for(lambda: self._job is not None, IDLE):
                    self._ended = True
                    return
                job, self._job = self._job, None
            assert job is not None
            tell = job()
            self._idle.append(self)         # first, so that the next call finds it
            with suppress(RuntimeError):    # the loop has been closed
                tell()
            del job, tell


class BlockingSide(Side):
    _threads: set[asyncio.Future[Any]]
    _idle: list[Worker]

    async def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """A blocking call of the client. It goes on if the caller is cancelled; see finished()."""
        if not hasattr(self, "_threads"):
            self._threads, self._idle = set(), []
        loop = asyncio.get_running_loop()
        running = loop.create_future()

        def settle(done: Callable[[Any], None], result: Any) -> None:
            if not running.done():
                done(result)

        def body() -> Callable[[], object]:
            try:
                return partial(loop.call_soon_threadsafe, settle, running.set_result,
                               work(*arguments))
            except BaseException as error:
                return partial(loop.call_soon_threadsafe, settle, running.set_exception, error)

        while self._idle:
            if self._idle.pop().give(body):
                break
        else:
            Worker(self._idle, body)
        self._threads.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._threads.discard(running)
        running.cancelled() or running.exception()      # perhaps no call reads it

    @property
    def busy(self) -> bool:
        return bool(getattr(self, "_threads", ()))

    async def finished(self) -> None:
        """Until no thread uses the client. Before, it must not be freed."""
        while self.busy:
            await asyncio.wait(self._threads.copy())
