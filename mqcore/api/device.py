"""device(): messages of one socket go to another, and back, in the data plane.

A device owns its sockets while it runs: any other use of them raises UsageError. It holds at most
one burst of messages in its hand; everything else stays where back-pressure keeps it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from mqcore.control.records import CloseReport
from mqcore.errors import WaitTimeout
from mqcore.sock.device import DeviceCore


@dataclass(frozen=True)
class DeviceStats:
    """What has passed. forth: front to back. `refused`: could never be passed on (a reply to a peer
    that had left); `captured` and `missed`: copies for the capture socket, and those it had no room
    for."""

    forth: int = 0
    forth_bytes: int = 0
    forth_refused: int = 0
    back: int = 0
    back_bytes: int = 0
    back_refused: int = 0
    captured: int = 0
    missed: int = 0


class Device:
    """A running device. `with` stops it and closes both sockets."""

    def __init__(self, front: Any, back: Any, capture: Any = None) -> None:
        self.front, self.back, self.capture = front, back, capture
        self._core = DeviceCore(front, back, capture)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._reports: tuple[CloseReport, ...] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mqcore-device", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._core.run()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def stats(self) -> DeviceStats:
        return DeviceStats(*self._core.counters())

    def pause(self) -> None:
        """Stop moving messages; they wait where they are. resume() goes on."""
        self._core.set_paused(True)

    def resume(self) -> None:
        self._core.set_paused(False)

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def wait(self, timeout: float | None = None) -> None:
        """Until the device has ended (by stop() from elsewhere); WaitTimeout."""
        limit = timeout
        while not self._ended.wait(0.2 if limit is None else min(0.2, limit)):
            if limit is not None:
                limit -= 0.2
                if limit <= 0:
                    raise WaitTimeout(f"the device still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    async def await_(self, timeout: float | None = None) -> None:
        """wait(), awaitable."""
        from mqcore.sock.sleep import sleep

        left = timeout
        while not self._ended.is_set():
            if left is not None and left <= 0:
                raise WaitTimeout(f"the device still runs after {timeout:g} s")
            await sleep(0.01)
            left = None if left is None else left - 0.01
        self.wait(0)

    def stop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """Stop reading, deliver what is in hand, close both sockets (and the capture), each within
        `linger` seconds. Their reports: front, back, capture. Idempotent."""
        with self._lock:
            if self._reports is None:
                self._core.stop()
                self._thread.join()
                seconds = self.back.linger if linger is ... else linger
                self._core.finish(1e9 if seconds is None else seconds)
                self._core.release()
                ends = [self.front,
                        self.back] + ([self.capture] if self.capture is not None else [])
                self._reports = tuple(end.close(linger) for end in ends)
            return self._reports

    async def astop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """stop(), awaitable."""
        from mqcore.api.aio import in_thread

        return await in_thread(lambda: self.stop(linger))

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Device:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.astop()

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<Device {self.front.pattern} <-> {self.back.pattern} {state}>"


def device(front: Any, back: Any, *, capture: Any = None) -> Device:
    """Start moving messages between front and back: router and dealer make a queue, xsub and xpub
    (or sub and pub) a forwarder, pull and push a streamer. `capture` gets a copy of everything."""
    return Device(front, back, capture)
