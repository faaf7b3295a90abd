"""What a node needs of trio, see loops.py. Its tasks live in a nursery of a system task."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from math import inf
from typing import Any

from mqcore.binding.sleep import Nap, in_trio
from mqcore.cluster.calling import Calling, cut_off, gone, nothing
from mqcore.cluster.errors import contained, split
from mqcore.cluster.handling import GLANCE, PATIENCE, awaited
from mqcore.cluster.loops import LASTING, POOL, Loop


class TrioLoop(Loop):
    """`leave()` closes the node, where one of its tasks ends the program."""

    def __init__(self, trouble: Callable[[BaseException], None],
                 leave: Callable[[], Awaitable[None]]) -> None:
        super().__init__(trouble)
        import trio

        self._leave = leave
        self.trio = trio
        self.token = trio.lowlevel.current_trio_token()
        self.pool, self.lasting = trio.CapacityLimiter(POOL), trio.CapacityLimiter(LASTING)
        self.bell: Nap | None = None
        self.begun, self.ended = trio.Event(), trio.Event()
        self._exiting = False
        self.task: Any = None
        # for what Ctrl-C between two lines would leave half done, such as the start of a task
        self._safely: Callable[..., Any] = trio.lowlevel.enable_ki_protection(
            lambda function, *args: function(*args))
        self._whole: Callable[..., Awaitable[Any]] = trio.lowlevel.enable_ki_protection(
            super().whole)

    async def whole(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return await self._whole(function, *args)

    async def start(self) -> None:
        # a task of its own: trio's scopes end in the task that they began in, and the task
        # that closes a node may be another one than joined it, or one of the node's own
        self.task = self.trio.lowlevel.spawn_system_task(self._hold)
        try:
            with self.trio.CancelScope(shield=True):
                await self.begun.wait()
        except KeyboardInterrupt:
            await self.aclose()
            raise

    async def _hold(self) -> None:
        try:
            async with self.trio.open_nursery() as self.nursery:
                self.spawn(self._timers)
                self.begun.set()
                await self.trio.sleep_forever()
        except* (KeyboardInterrupt, SystemExit) as exits:   # Ctrl-C between the lines of spawn()
            self._safely(self._exit, exits)
        except* Exception as errors:        # none is expected, see spawn()
            self.trouble(errors)
        finally:        # the run may have cancelled this, and the main task may wait for the node
            self.ended.set()
            if not self.leaving:
                self._begin_to_leave()

    def _exit(self, error: BaseException) -> None:
        """A handler has raised KeyboardInterrupt or SystemExit, or Ctrl-C has ended a task of the
        node's own: that is for the program's main task, once. What was cut short may be missing
        from now on, so the node leaves. Its other tasks go on, and may raise the same."""
        if not self._exiting:
            self._exiting = True        # what the node has answered itself is on its way
            self.soon(self._begin_to_leave)
            self.trio.lowlevel.spawn_system_task(self._raise, error)

    def _begin_to_leave(self) -> None:
        with suppress(RuntimeError):    # the run ends
            self.trio.lowlevel.spawn_system_task(self._left)

    async def _left(self) -> None:
        try:
            await self._leave()
        except Exception as error:
            self.trouble(error)

    async def _raise(self, error: BaseException) -> None:
        """Interrupt the main task of this run, as trio's handler of SIGINT does. A signal would not
        do: it may be ignored, as in a shell's background, or the run may be in another thread."""
        deliver = getattr(self.task._runner, "deliver_ki", None)
        if deliver is None:     # another trio: the run ends with TrioInternalError
            raise error
        deliver()

    @property
    def _here(self) -> bool:
        return in_trio() and self.trio.lowlevel.current_trio_token() is self.token

    def check(self) -> None:
        if not self._here:
            raise self._elsewhere()

    @property
    def over(self) -> bool:
        return super().over or self.ended.is_set() and not self._here

    def spawn(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Callable[[], Any]:
        scope = self.trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    await function(*args)
                except BaseException as error:
                    exits, others = split(error, (KeyboardInterrupt, SystemExit))
                    cancelled, ours = split(others, self.trio.Cancelled)
                    if self.trio.current_effective_deadline() > -inf:   # another task's Cancelled
                        cancelled, ours = None, others
                    if exits is not None:
                        self._safely(self._exit, exits)
                    if ours is not None:
                        self.trouble(ours)
                    if cancelled is error:
                        raise
                    if cancelled is not None:
                        raise cancelled from None

        try:
            self._safely(self.nursery.start_soon, run)
        except RuntimeError:        # the node has left, or trio's run is over before it
            return nothing
        return scope.cancel

    def this_task(self) -> Any:
        return self.trio.lowlevel.current_task() if self._here else None

    def _arm(self, when: float) -> None:
        if self.bell is not None:
            self.bell.wake()

    async def _timers(self) -> None:
        while True:
            self.bell = None        # what is added meanwhile is seen by run()
            due = self.timers.run(time.monotonic())
            self.bell = Nap()
            await self.bell.wait(due)

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        self.token.run_sync_soon(function, *args)

    def reader(self, source: Any, function: Callable[[], Any]) -> Callable[[], Any]:
        async def watch() -> None:
            while True:     # it may be over, and the source closed, before it has begun
                await self.trio.lowlevel.checkpoint_if_cancelled()
                await self.trio.lowlevel.wait_readable(source)
                function()

        return self.spawn(watch)

    async def in_pool(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self._thread(self.pool, function, *args)

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self._thread(self.lasting, function, *args)

    async def _thread(self, limiter: Any, function: Callable[..., Any], *args: Any) -> Any:
        # abandon_on_cancel: a plain handler that never returns does not keep a node from leaving
        result, = await self.trio.to_thread.run_sync(_wrapped, function, *args, limiter=limiter,
                                                     abandon_on_cancel=True)
        return result

    def _post(self, function: Callable[..., Any], *args: Any) -> None:
        try:        # in the caller's context, as call_soon_threadsafe() does
            self.token.run_sync_soon(copy_context().run, function, *args)
        except self.trio.RunFinishedError:
            raise gone() from None

    def _begin(self, calling: Calling) -> None:
        try:        # not in the node's nursery, since the call may close the node
            self.trio.lowlevel.spawn_system_task(self._run, calling, context=copy_context())
        except RuntimeError:        # the run ends
            calling.finish(error=gone())

    async def _run(self, calling: Calling) -> None:
        with self.trio.CancelScope() as scope:
            calling.cancel = scope.cancel
            try:
                calling.finish(await calling.run())
            except self.trio.Cancelled:
                calling.finish(error=cut_off())
                raise
            except BaseException as error:
                calling.finish(error=error)     # the caller's thread raises it

    async def aclose(self) -> None:
        if self.task is None:       # Ctrl-C came before it began
            self.ended.set()
            return
        if not self.begun.is_set():
            with self.trio.CancelScope(shield=True):
                await self.begun.wait()     # another task is within start()
        self.nursery.cancel_scope.cancel()
        trio, left = self.trio, PATIENCE
        with trio.CancelScope(shield=True):
            # it does not end before the handlers that are not waited for
            while not self.ended.is_set() and (awaited(self.handlers) or not self.handlers):
                if left <= 0:
                    self.left = len(awaited(self.handlers))
                    break
                looked = trio.current_time()
                with trio.move_on_after(GLANCE):
                    await self.ended.wait()
                left -= min(GLANCE, trio.current_time() - looked)       # it may have stood still


def _wrapped(function: Callable[..., Any], *args: Any) -> tuple[Any]:
    """trio takes no coroutine from a thread, and a plain handler may return one."""
    return (contained(function, *args),)
