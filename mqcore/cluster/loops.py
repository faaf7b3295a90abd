"""What a node needs of the event loop it lives in: tasks, timers, threads. asyncio or trio.

A node belongs to the loop that it joined in. All of its state is touched on that loop's thread
only. `call` brings work of other threads there; `in_pool` brings blocking work away from it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from mqcore.base.threads import LOOK, Thread
from mqcore.base.waits import stay_asleep
from mqcore.binding.sleep import Nap, in_trio, running_loop
from mqcore.cluster.calling import Calling, forked, gone, look_at, nothing, twice
from mqcore.cluster.errors import NodeClosed, beginning, contained
from mqcore.cluster.handling import GLANCE, PATIENCE, Handler, around, awaited, handle
from mqcore.cluster.timers import Timers
from mqcore.errors import StateError

SILENCE = 3.0   # seconds; a loop that runs in slices takes up what it is given within this time
POOL = 32       # threads of plain (not async) handlers
LASTING = 288   # threads of what may last: plain handlers of tunnels, look-ups of names


class Loop:
    """Base class. `trouble(error)` gets the exceptions of tasks."""

    def __init__(self, trouble: Callable[[BaseException], None]) -> None:
        self._home = threading.local()      # a thread's ident is given to later ones
        self._home.here = True
        self.pid = os.getpid()
        self.trouble = trouble
        self.loop: Any = None       # asyncio's
        self.leaving = False        # the node leaves, or has left
        self.handlers: set[Handler] = set()     # that run
        self.left = 0       # handlers that the leave has not waited for any longer
        self.timers = Timers(self._arm, trouble)

    def _arm(self, when: float) -> None:
        """Have the timers run at that time of time.monotonic()."""
        raise NotImplementedError

    async def start(self) -> None: ...

    def nap(self) -> Nap:
        """For a task of this loop. Raises what check() raises."""
        self.check()
        return Nap(self.loop)

    def check(self) -> None:
        """Raises StateError unless this loop runs the caller: a task of another one would touch the
        node at the same time as this loop. Raises NodeClosed if this loop has ended."""
        raise NotImplementedError

    def _elsewhere(self) -> Exception:
        if self.inherited:
            return forked()
        return gone() if self.over else StateError(
            "this node lives in another event loop, or in a thread of its own",
            hint="make the call of the same name without the a: it blocks, so make it in a thread")

    def spawn(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Callable[[], Any]:
        """Run in a task; the result cancels it."""
        raise NotImplementedError

    def handle(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """spawn() for what calls a service's method."""
        self.spawn(handle, self, function, *args)

    def this_task(self) -> Any:
        """The task of this loop that makes the call."""

    def later(self, seconds: float, function: Callable[[], Any]) -> Callable[[], Any]:
        """Call on the loop's thread after that time; the result cancels it."""
        return partial(self.timers.cancel, self.timers.at(time.monotonic() + seconds, function))

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Call on the loop's thread, from that thread, not within the present call."""
        raise NotImplementedError

    def reader(self, source: Any, function: Callable[[], Any]) -> Callable[[], Any]:
        """Call whenever the socket is readable; the result ends that."""
        raise NotImplementedError

    async def in_pool(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run in one of POOL threads. A cancelled caller does not wait for it."""
        raise NotImplementedError

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        """in_pool() for what may last as long as it likes, such as a name server's answer: in one
        of LASTING other threads, for which the end of the program does not wait."""
        raise NotImplementedError

    def call(self, function: Callable[..., Awaitable[Any]], *args: Any,
             undo: Callable[[Any], Any] | None = None) -> Any:
        """Run a coroutine function on the loop, from another thread, and wait for its result.
        undo(result) is called on the loop's thread if a signal handler raises here when there is
        one: the caller does not get it."""
        if self.inherited:      # the loop's thread is not here: no thread would answer
            raise forked()
        if self._in_its_thread() and not self.over:
            raise StateError("a blocking call would stop the event loop of this node",
                             hint="await the call of the same name that begins with a")
        try:
            return self._call(Calling(function, args, undo, self.trouble))
        except Exception:
            stay_asleep()   # this program may run the node that it asks, too
            raise

    def _in_its_thread(self) -> bool:
        """Whether a blocking call here would wait for what this thread itself is to run."""
        return hasattr(self._home, "here")

    def end(self, function: Callable[..., Awaitable[Any]], *args: Any,
            otherwise: Any = None) -> Any:
        """call() of what ends something. If the loop has ended, or the node leaves meanwhile, so
        has that, and the result is `otherwise`."""
        try:
            return otherwise if self.over else self.call(function, *args)
        except NodeClosed:
            if not self.over and not self.leaving:      # only this call has been cancelled
                raise
            return otherwise

    @property
    def over(self) -> bool:
        """The loop is closed or the parent process's: nothing of the node runs any more."""
        return self.inherited

    @property
    def inherited(self) -> bool:
        """It is the parent process's. What a forked child closes there is left as it is."""
        return self.pid != os.getpid()

    def _call(self, calling: Calling) -> Any:
        try:
            self._ask(calling)
            while not calling.over.wait(LOOK):
                if self.inherited:      # a signal handler has forked
                    raise forked()
                if self._dead(calling) and not calling.over.is_set():
                    raise gone()
            return calling.outcome()
        except BaseException as error:
            if error is calling.error:
                calling.error = None    # it refers to this frame
            elif not self.inherited:
                twice(self._give_up, calling)
            raise

    def _give_up(self, calling: Calling) -> None:
        with suppress(NodeClosed):      # the loop has ended
            self._post(calling.give_up)

    def _post(self, function: Callable[..., Any], *args: Any) -> None:
        """Call it on the loop's thread, from any thread, in order. Raises NodeClosed if the loop
        has ended."""
        raise NotImplementedError

    def _ask(self, calling: Calling) -> None:
        """Have the loop begin it. Raises NodeClosed if the loop has ended."""
        self._post(self._begin, calling)

    def _begin(self, calling: Calling) -> None:
        """Run it in a task, on the loop's thread."""
        raise NotImplementedError

    def _dead(self, calling: Calling) -> bool:
        """Whether the loop has ended and left what calls have given it."""
        return False

    async def whole(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Await it. On trio, Ctrl-C raises KeyboardInterrupt in it where it waits, as a cancelled
        scope raises Cancelled, and not between two lines."""
        return await function(*args)

    async def aclose(self) -> None:
        """Cancel all tasks, and wait for their end as handling.py says."""


def _settle(result: Future[Any], function: Callable[..., Any], *args: Any) -> None:
    """What the function returns or raises becomes the result."""
    try:
        value = function(*args)
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(value)


class NoLoop(Loop):
    """Of a node that has not joined yet."""

    def __init__(self) -> None:
        super().__init__(lambda error: None)

    def check(self) -> None:
        raise StateError("this node has not joined yet", hint="async with cluster.ajoin(...)")

    def call(self, function: Callable[..., Awaitable[Any]], *args: Any,
             undo: Callable[[Any], Any] | None = None) -> Any:
        raise StateError("this node has not joined yet", hint="with cluster.join(...)")


class AsyncioLoop(Loop):
    def __init__(self, trouble: Callable[[BaseException], None]) -> None:
        super().__init__(trouble)
        self.loop = running_loop()
        self.tasks: set[Any] = set()
        self._ended = False
        asyncio: Any = sys.modules["asyncio"]
        # from Python 3.12 on, a task begins at once: a handler that waits for nothing is then over
        # without another turn of the loop
        self._task: Any = partial(asyncio.Task, eager_start=True) \
            if sys.version_info >= (3, 12) else asyncio.Task
        self._current: Callable[[Any], Any] = asyncio.current_task
        self._running: Callable[[], Any] = asyncio._get_running_loop
        self._cancelled: type[BaseException] = asyncio.CancelledError
        self._armed: Any = None
        self.pool: ThreadPoolExecutor | None = None
        self.lasting = asyncio.Semaphore(LASTING)

    def check(self) -> None:
        if self._running() is not self.loop:
            raise self._elsewhere()

    def _in_its_thread(self) -> bool:
        # a program may run its loop in one thread, and then in another one
        return self._running() is self.loop or super()._in_its_thread()

    def spawn(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Callable[[], Any]:
        task = self._task(self._guard(function, *args), loop=self.loop)
        if task.done():
            return nothing
        self.tasks.add(task)
        return partial(self._cancel, task)

    def _cancel(self, task: Any) -> None:
        task.add_done_callback(self.tasks.discard)      # it may not have begun
        task.cancel()

    async def _guard(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        try:
            await function(*args)
        except self._cancelled:
            raise
        except (KeyboardInterrupt, SystemExit):     # the run of this loop ends, and raises it
            self._current(self.loop).add_done_callback(look_at)
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and self.loop.is_closed():
                raise       # not a handler's: this coroutine is thrown away
            self.trouble(error)
        finally:        # a callback of the task would cost a turn of the loop
            self.tasks.discard(self._current(self.loop))

    def _arm(self, when: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed = self.loop.call_later(max(0.0, when - time.monotonic()), self._ring)

    def _ring(self) -> None:
        self._armed = None
        due = self.timers.run(time.monotonic())
        if due is not None and self._armed is None:
            self._arm(due)

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        self.loop.call_soon(function, *args)

    def reader(self, source: Any, function: Callable[[], Any]) -> Callable[[], Any]:
        number = source.fileno()
        self.loop.add_reader(number, function)
        return lambda: self.loop.remove_reader(number)

    async def in_pool(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.pool is None:
            self.pool = ThreadPoolExecutor(POOL, "mqcore-cluster")
        # the thread continues the caller's trace, as asyncio.to_thread() does
        with beginning(self.leaving):
            future = self.loop.run_in_executor(self.pool, copy_context().run, contained, function,
                                               *args)
        return await future

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        asyncio: Any = sys.modules["asyncio"]
        result: Future[Any] = Future()
        held = [self.lasting]       # the one that takes it out of the list releases it

        def run() -> None:
            try:
                if result.set_running_or_notify_cancel():
                    _settle(result, copied.run, contained, function, *args)
            finally:
                with suppress(NodeClosed, IndexError):
                    self._post(held.pop().release)

        await self.lasting.acquire()
        copied = copy_context()
        try:
            with beginning(self.leaving):
                Thread(run, "mqcore-cluster").start()
        except BaseException:       # the thread may run nevertheless
            with suppress(IndexError):
                held.pop().release()
            raise
        return await asyncio.wrap_future(result)

    def _post(self, function: Callable[..., Any], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            raise gone() from None

    def _ask(self, calling: Calling) -> None:
        if self._ended:
            raise gone()
        super()._ask(calling)

    def _dead(self, calling: Calling) -> bool:
        """Whether the loop runs no more, and leaves what was begun, or was to begin, as it is. A
        program may stop its loop and run it again. While the node leaves, a loop that has taken up
        nothing for SILENCE counts as ended."""
        if self.loop.is_closed():
            return True
        if not self.leaving or self.loop.is_running():
            return False
        if since := calling.unheard:        # the loop may take up heard() at any moment
            return time.monotonic() - since > SILENCE
        calling.unheard = time.monotonic()
        with suppress(NodeClosed):
            self._post(calling.heard)
        return False

    def _begin(self, calling: Calling) -> None:
        task = self.loop.create_task(calling.run())
        calling.cancel = task.cancel
        task.add_done_callback(calling.hand_over)

    @property
    def over(self) -> bool:
        return super().over or self._ended or self.loop.is_closed()

    def this_task(self) -> Any:
        return self._current(self.loop)

    async def _ends_of(self, tasks: set[Any]) -> None:
        """Wait for tasks that are cancelled, see handling.py. The first one who cancels this
        cancels them once more, as a handler that cleans up may need. Further ones do not: it may
        be such a task that does, each time that it is cancelled. gather() would raise their
        CancelledError, in which anyio's scopes do not find their own text."""
        asyncio: Any = sys.modules["asyncio"]
        cancelled = None
        left = PATIENCE
        while True:
            others = {one.task for one in self.handlers - awaited(self.handlers)}
            running = [task for task in tasks if not task.done() and task not in others]
            if not running or left <= 0:
                self.left = len(running)
                break
            looked = self.loop.time()
            try:
                await asyncio.wait(running, timeout=GLANCE)
            except asyncio.CancelledError as error:
                if cancelled is None:
                    for task in tasks:
                        task.cancel()
                cancelled = error
            left -= min(GLANCE, self.loop.time() - looked)      # it may have stood still
        if cancelled is not None:
            raise cancelled

    async def aclose(self) -> None:
        asyncio: Any = sys.modules["asyncio"]
        if self._armed is not None:
            self._armed.cancel()
        if self.pool is not None:
            self.pool.shutdown(wait=False)
        # the caller ends by itself. The handlers that have started it are cancelled at the end:
        # they would pass that on to the leave that they wait for
        own = {one.task for one in around()} | {asyncio.current_task()}
        tasks = self.tasks - own
        for task in tasks:
            task.cancel()
        try:
            await self._ends_of(tasks)
            self._ended = True
            # the loop may end right after this: what other threads have called until now begins
            # (it becomes a task, then takes its first step), and finds that the node has left
            for _ in range(2):
                await asyncio.sleep(0)
        finally:
            self._ended = True
            for task in self.tasks & own - {asyncio.current_task()}:
                if not task.cancelling():
                    task.cancel()


def loop_here(trouble: Callable[[BaseException], None],
              leave: Callable[[], Awaitable[None]]) -> Loop:
    """For the event loop that runs in this thread."""
    from mqcore.cluster.trio_loop import TrioLoop

    return TrioLoop(trouble, leave) if in_trio() else AsyncioLoop(trouble)
