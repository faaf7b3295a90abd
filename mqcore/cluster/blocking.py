"""A node for programs without an event loop: asyncio in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from mqcore.base.threads import LOOK, Thread
from mqcore.base.waits import Event
from mqcore.cluster.calling import forked
from mqcore.cluster.calls import Node
from mqcore.cluster.errors import without_files
from mqcore.errors import StateError


class Joined:
    """`with cluster.join(...) as net`. The node's blocking calls may be made from any thread."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._ready = Event()
        self._node: Node | None = None
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = False
        self._pid = 0
        self._thread = Thread(self._run, "mqcore-cluster")

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:    # makes its loop first, which may fail
                runner.run(self._main())
        except BaseException as error:
            self._error = error if self._loop is not None else without_files(error)
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._left:
            return
        async with self._make() as node:
            self._node = node
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Node:
        if self._thread.ident is not None:
            raise StateError("this node has joined already", hint="make another one")
        self._pid = os.getpid()
        try:
            self._thread.start()        # it may run, whether or not this returns
            while not self._ready.wait(LOOK):
                if self._pid != os.getpid():        # a signal handler has forked
                    raise forked()
            if self._node is not None:
                return self._node
            self._thread.join()
        except BaseException:  # Ctrl-C
            self._leave()
            raise
        assert self._error is not None
        raise self._error

    def _leave(self) -> None:
        self._left = True
        if self._loop is not None and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):     # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    def __exit__(self, *exc: object) -> None:
        try:
            self._leave()
            self._thread.join()
        except BaseException:  # Ctrl-C
            self._leave()
            raise
        if self._error is not None:
            raise self._error
