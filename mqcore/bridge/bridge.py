"""Bridge: a runner in a thread of its own, for programs that are not asyncio programs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Self

from mqcore.base.components import COMPONENTS, State
from mqcore.base.living import Living
from mqcore.base.threads import Thread
from mqcore.base.waits import Event
from mqcore.bridge.errors import BridgeStopped
from mqcore.bridge.message import Message
from mqcore.bridge.runner import Runner, Stats
from mqcore.bridge.spi import Source, Target
from mqcore.errors import Forked, WaitTimeout

_log = logging.getLogger("mqcore.bridge")

ENDING = 10.0       # seconds beyond `linger` until stop() gives up on the thread


class Bridge:
    """Moves messages from `source` to `target`, at least once, until stop().

    source, target: addresses ("redis://host?stream=orders", "pull+bind:tcp://*:5555"), or objects
    of your own, derived from Source and Target. dead: the address of a target for messages that
    `target` refuses for good, or "discard"; without it such a message ends the bridge. window,
    window_bytes: messages and bytes at most that were received and are not yet acknowledged. batch:
    messages at most that are sent together. confirm_timeout: seconds until an unconfirmed batch
    counts as lost and the bridge connects again. headers: {"old": "new", "unwanted": None}. map:
    a function that gets each message and returns it, another one, or None to discard it; it runs
    in the bridge's thread. pause, longest_pause: seconds between attempts to connect, doubled each
    time. linger: seconds that stop() gives to messages under way.

    It connects in the background: either system may start later. `with` stops it. Raises
    AddressError, OptionError, UnknownTransport, NotSupported (a client package is missing).
    """

    def __init__(self, source: str | Source, target: str | Target, *,
                 dead: str | Target | None = None, window: int = 1000,
                 window_bytes: int = 64 << 20, batch: int = 200, confirm_timeout: float = 30.0,
                 headers: Mapping[str, str | None] | None = None,
                 map: Callable[[Message], Message | None] | None = None,
                 pause: float = 0.1, longest_pause: float = 30.0, linger: float = 5.0) -> None:
        self._runner = Runner(source, target, dead=dead, window=window, window_bytes=window_bytes,
                              batch=batch, confirm_timeout=confirm_timeout, headers=headers,
                              map=map, pause=pause, longest_pause=longest_pause)
        self._linger = linger
        self._pid = os.getpid()
        self._error: BaseException | None = None
        self._ended = Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(self._run, "mqcore-bridge")
        _bridges.add(self)
        try:
            self._thread.start()
        except BaseException:       # no thread
            self._loop.close()
            raise

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._runner.run(self._linger))
        except BaseException as error:
            self._error = error
            COMPONENTS.add(self)
            _log.error("the bridge %s has ended: %s", self._runner.name(), error, exc_info=error)
        finally:
            self._ended.set()

    def _mq_components(self) -> list[State]:
        """Its runner shows it while it runs. An error that has ended it is shown from then on."""
        return [State("bridge", self._runner.name(), "failed", str(self._error))]

    @property
    def running(self) -> bool:
        return self._pid == os.getpid() and not self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """What ended it, if an error did."""
        return self._error

    def stats(self) -> Stats:
        """Counts since it was started."""
        return self._runner.stats()

    def explain(self) -> str:
        """What it does and waits for, in some lines."""
        return self._runner.explain()

    def wait_stopped(self, timeout: float | None = None) -> None:
        """Until it has ended; then raises what ended it, if an error did. WaitTimeout."""
        self._usable()
        if not self._ended.wait(timeout):
            raise WaitTimeout(f"the bridge still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Receive no more, give what is held `linger` seconds, disconnect. What was not
        acknowledged stays in the source. Idempotent."""
        if self._pid != os.getpid():
            return
        try:
            self._loop.call_soon_threadsafe(self._runner.stop)
        except RuntimeError:        # the loop is closed: it has ended
            pass
        if not self._thread.is_current() and \
                not self._ended.wait(self._linger + ENDING):
            raise BridgeStopped("the bridge's thread has not ended", hint="a client library "
                                "blocks it; explain() names the systems")

    def _usable(self) -> None:
        if self._pid != os.getpid():
            raise Forked("this bridge runs in the parent process", hint="start one in the child")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Bridge {self._runner.name()}, {'running' if self.running else 'ended'}>"


_bridges: Living[Bridge] = Living()     # those of this process


def _after_fork() -> None:
    _bridges.clear()        # their threads are not here


os.register_at_fork(after_in_child=_after_fork)
