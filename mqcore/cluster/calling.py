"""What a blocking call of a node runs on the node's event loop, and how its thread gets the result.

CPython runs signal handlers between the bytecodes of the main thread, and their exceptions end
whatever is under way there: also a method of the standard library's Future that holds its lock, for
which the event loop would then wait for ever. So the two threads share no lock, see Calling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mqcore.base.waits import Event
from mqcore.cluster.errors import NodeClosed
from mqcore.errors import Forked


class Calling:
    """What a blocking call runs on the loop. The exception of a signal handler may end that call
    in its thread at any moment: see give_up(). The loop fills it, and the caller's thread sleeps
    until `over`, an Event: no lock that a handler's exception could leave taken."""

    def __init__(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...],
                 undo: Callable[[Any], Any] | None, trouble: Callable[[BaseException], None]) \
            -> None:
        self._function, self._args, self._undo = function, args, undo
        self._trouble = trouble
        self._made: list[Any] = []
        self.given_up = False
        self.unheard = 0.0      # since when heard() is due; 0: it is not
        self.cancel: Callable[[], Any] = nothing
        self.over = Event()
        self.value: Any = None
        self.error: BaseException | None = None

    async def run(self) -> Any:
        if self.given_up:
            return None
        result = await self._function(*self._args)
        self._made.append(result)       # and it is over, before anything else runs on the loop
        if self.given_up:       # too late to cancel it
            self._undo_it()
        return result

    def heard(self) -> None:
        """On the loop, which so still runs."""
        self.unheard = 0.0

    def give_up(self) -> None:
        """On the loop: the caller does not get the result. What does not run yet never does; what
        runs is cancelled, and what it has made, or makes all the same, is undone."""
        self.given_up = True
        self.cancel()
        self._undo_it()

    def _undo_it(self) -> None:
        try:
            if self._made and self._undo is not None:
                self._undo(self._made.pop())
        except Exception as error:      # trio's run would end
            self._trouble(error)

    def hand_over(self, task: Any) -> None:
        """From an asyncio task that is over."""
        if task.cancelled():
            self.finish(error=cut_off())
        elif (error := task.exception()) is not None:
            self.finish(error=error)
        else:
            self.finish(task.result())

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """On the loop: wake the caller's thread, which gets the value, or raises the error."""
        self.cancel = nothing
        self.value, self.error = value, error
        self.over.set()

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def twice(give_up: Callable[[Calling], None], calling: Calling) -> None:
    """Give the call up. If a second signal handler raises meanwhile, as at a second Ctrl-C, give it
    up once more, which changes nothing where the loop knows already."""
    try:
        give_up(calling)
    except BaseException:
        give_up(calling)
        raise


def cut_off() -> NodeClosed:
    """Of a blocking call: a loop that ends cancels all tasks, before it is over."""
    return NodeClosed("this call was cancelled: the node's event loop ends, or has ended")


def gone() -> NodeClosed:
    """Of a call to a loop that runs nothing any more."""
    return NodeClosed("this node has left the cluster, and its event loop has ended")


def forked() -> Forked:
    """Of a call in a forked child: the thread that would answer it is not there."""
    return Forked("this node belongs to the parent process", hint="join in the child")


def nothing() -> None:
    """What cancels a task that is over."""


def look_at(task: Any) -> None:
    """Else asyncio logs an exception that was never retrieved."""
    if not task.cancelled():
        task.exception()
