"""Workers: short-lived threads of a control loop for work that may block. Each kind of work has its
own pool, so that slow authentication callbacks do not delay name look-ups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqcore.base.threads import Thread

if TYPE_CHECKING:
    from mqcore.control.loop import ControlLoop


class Workers:
    """At most `most` threads at once; further jobs queue. A thread ends when the queue is empty.

    It takes no lock: a signal handler may interrupt any call here and wait for the control thread,
    which makes such calls, too. What two threads must not both do is an item of a deque."""

    def __init__(self, loop: ControlLoop, name: str, most: int) -> None:
        self._loop = loop
        self._name = name
        self._jobs: deque[tuple[Callable[[], Any], Callable[..., Any]]] = deque()
        self._free = deque(range(most))  # a number for each thread that may still start
        self._most = most
        self._stopped = False

    def run(self, fn: Callable[[], Any], callback: Callable[..., Any]) -> None:
        """Run fn() on a worker, then callback(result, None) or callback(None, error) on the control
        thread."""
        self._jobs.append((fn, callback))
        if self._stopped:  # looked at last: stop() clears what it has seen
            self._jobs.clear()
            return
        try:
            number = self._free.pop()
        except IndexError:  # as many as may be; each looks for jobs before it ends
            return
        try:
            self._loop.spawn(Thread(self._work, self._name, (number,)))
        except RuntimeError as error:  # no more threads
            self._free.append(number)
            if len(self._free) == self._most:  # and no thread is left for them: they fail
                self._fail(OSError(str(error)))

    def _fail(self, error: OSError) -> None:
        for _ in range(len(self._jobs)):
            try:
                _, waiting = self._jobs.popleft()
            except IndexError:  # another thread's turn
                return
            self._loop.call(waiting, None, error)

    def stop(self) -> None:
        """Drop queued jobs and ignore the results of running ones."""
        self._stopped = True
        self._jobs.clear()

    def _work(self, number: int) -> None:
        while True:
            try:
                fn, callback = self._jobs.popleft()
            except IndexError:
                self._free.append(number)
                if not self._jobs:
                    return
                try:  # a job came before the number was free again
                    number = self._free.pop()
                except IndexError:  # and another thread has it
                    return
                continue
            try:
                result, failure = fn(), None
            except BaseException as error:
                result, failure = None, error
            if not self._stopped:
                self._loop.call(callback, result, failure)
            del fn, callback, result, failure  # keep nothing alive while waiting
