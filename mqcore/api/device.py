"""device(): moves messages from one socket to another and back, in the data plane.

A device owns its sockets while it runs: any other use of them raises UsageError. It buffers at most
one burst of messages. All others stay in the sockets' queues, subject to back-pressure.

Each socket speaks each peer's own protocol, so a device with ZMTP peers on one side and SP peers on
the other is a bridge. It needs no configuration.

The hop limit (option `max_hops`) ends routing loops. Requests and surveys carry their route and
PAIR1 carries a hop count. A message that has passed more devices is dropped and counted as
`hop_limit` at the peer that it came from. BUS, PUB and PUSH messages carry neither. BUS works in
both directions, so with two devices in a loop every message returns for ever and multiplies. That
is why a device refuses bus sockets by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mqcore.api import hooks as of_hooks
from mqcore.api.hooks import HookStats
from mqcore.api.running import Running, socket_name
from mqcore.base.described import described
from mqcore.base.waits import Released
from mqcore.binding.core import SocketCore
from mqcore.control.stats import CloseReport
from mqcore.devices.mover import DeviceCore
from mqcore.errors import HookError, StateError, UsageError
from mqcore.spi.drop import DROP_REASONS

HOP_LIMIT = [name for name, _ in DROP_REASONS].index("hop_limit")
#: patterns whose envelopes only their counterpart understands
COUNTERPARTS = {"surveyor": "respondent", "respondent": "surveyor", "bus": "bus", "pair1": "pair1"}


@dataclass(frozen=True)
class DeviceStats:
    """What has passed. forth: front to back. `refused`: could never be passed on (a reply to a peer
    that had left); `captured` and `missed`: copies for the capture socket, and those that did not
    fit; `hop_limit`: what had passed more than `max_hops` devices, mostly because it went round in
    a circle of them; `discarded`: those in its buffer that it could not deliver when it ended;
    `hooks`: what each hook did. Without hooks, a device passes on all that it receives. With them,
    received messages equal passed ones plus those that a hook dropped, sampled out or failed on."""

    forth: int = 0
    forth_bytes: int = 0
    forth_refused: int = 0
    back: int = 0
    back_bytes: int = 0
    back_refused: int = 0
    captured: int = 0
    missed: int = 0
    hop_limit: int = 0
    discarded: int = 0
    hooks: tuple[HookStats, ...] = ()


class Device(Running):
    """A running device. stop() sends the messages in its buffer, closes both sockets and the
    capture socket, and returns their reports: front, back, capture."""

    def __init__(self, front: Any, back: Any, capture: Any = None, *,
                 allow_bus: bool = False, hooks: Sequence[Any] = ()) -> None:
        self.front, self.back, self.capture = front, back, capture
        _check(front, back, allow_bus)
        self.hooks = of_hooks.checked(hooks, front, back)
        taps = [hook.target for hook in self.hooks if isinstance(hook.target, SocketCore)]
        if capture is not None and capture in taps:
            raise UsageError("a socket cannot be both the capture and a tap of a device",
                             hint="use a socket for each")
        self._ends = tuple(dict.fromkeys(
            (front, back, *([] if capture is None else [capture]), *taps)))
        self._its_sockets = self._ends
        self._hook_cores = [hook._core() for hook in self.hooks]
        self._core = DeviceCore(front, back, capture, self._hook_cores)
        self._begin("mqcore-device")

    def _release(self) -> None:
        self._core.stop()
        self._core.release()

    def _loop(self) -> None:
        hook = self._core.run()
        if hook is not None:
            why = hook.reason()
            text = described(why) if isinstance(why, BaseException) else why
            raise HookError(f"the hook {hook.name!r} of a device failed"
                            + (f" ({text})" if text else "") + ", and the device has stopped",
                            hook=hook.name) from (why if isinstance(why, BaseException) else None)

    def stats(self) -> DeviceStats:
        """What has passed so far."""
        looped = 0
        for end in dict.fromkeys((self.front, self.back)):
            accounts = end._accounts()
            for peer in (accounts["total"], *(facts for _, facts in accounts["live"])):
                looped += peer["in_dropped"][HOP_LIMIT]
        counts = self._core.counters()
        return DeviceStats(*counts[:-1], looped, counts[-1], tuple(
            hook._stats(core) for hook, core in zip(self.hooks, self._hook_cores, strict=True)))

    def _which(self) -> str:
        return f"{socket_name(self.front)} and {socket_name(self.back)}"

    def pause(self) -> None:
        """Stop moving messages, which stay in the queues until resume()."""
        self._core.set_paused(True)

    def resume(self) -> None:
        """Move messages again."""
        self._core.set_paused(False)

    def stop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """Stop it and close each socket within `linger` seconds. Returns the reports of front,
        back, capture and the sockets of taps. Idempotent."""
        if self._thread.is_current():
            raise StateError("a hook cannot stop its own device: stop() waits for the hook",
                             hint='raise an exception in a hook with on_error="stop", or call '
                                  "stop() in another thread")
        return super().stop(linger)

    def _at_exit(self) -> None:
        if self._hook_cores:
            self._core.stop()
            self._leave_behind()

    def _stop(self, linger: Any) -> tuple[CloseReport, ...]:
        self._core.stop()
        with Released():
            self._thread.join()
        seconds = self.back.linger if linger is ... else linger
        self._core.finish(1e9 if seconds is None else seconds)
        self._core.release()
        return tuple(end.close(linger) for end in self._ends)

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<Device {self.front.pattern} <-> {self.back.pattern} {state}>"


def _check(front: Any, back: Any, allow_bus: bool) -> None:
    """Refuse sockets that do not fit together, and loops."""
    for end in (front, back):
        if not isinstance(end, SocketCore):
            raise UsageError(f"the ends of a device must be sockets, not {type(end).__name__}")
    names = (front.pattern, back.pattern)
    for name, other in (names, names[::-1]):
        partner = COUNTERPARTS.get(name, other)
        if other != partner:
            raise UsageError(f"a device with a {name} socket at one end needs a {partner} at the "
                             f"other, not a {other}", hint=f"use mqcore.{partner.capitalize()}")
    if front is back and names != ("bus", "bus"):
        raise UsageError("a device needs different sockets at its ends",
                         hint="only a bus can repeat messages to its other peers")
    if names == ("bus", "bus") and not allow_bus:
        raise UsageError("a device refuses bus sockets: BUS messages carry no route, so with two "
                         "devices in a loop every message circulates for ever and "
                         "multiplies",
                         hint="let all members connect to each other, or use xsub and xpub; pass "
                              "allow_bus=True if no second path joins the two buses")


def _check_rights(rights: Any) -> None:
    if rights is not None:
        raise UsageError("rights= is for a device from a socket into a journal",
                         hint="call mqcore.device(front, writer, rights=...)")


def device(front: Any, back: Any = None, *, capture: Any = None,
           allow_bus: bool = False, hooks: Sequence[Any] = (), rights: Any = None) -> Any:
    """Start moving messages between front and back. These pairs fit together:

        router and dealer          a queue: requests to any free worker, replies back
        respondent and surveyor    the same for surveys
        xsub and xpub, sub and pub a forwarder: to all subscribers
        pull and push              a streamer: collects work and distributes it
        pair and pair, pair1 and pair1
        bus and bus                only with allow_bus=True, see below

    `capture` receives a copy of every message that is passed on. `hooks` filter, change, sample and
    tap messages on their way, in the order of the list: Hooks, or functions, each of which is a
    Hook.transform. The device switches surveyor, respondent, bus and
    pair1 sockets to their raw form. The raw form of req and rep is dealer and router.

    A bus device requires allow_bus=True. BUS messages carry no route, so if a second path joins the
    two buses (a second device is enough), each message returns for ever and multiplies. With
    allow_bus=True you can also pass a single bus, which then repeats each message to all other
    members.

    If back is a journal's writer, the device stores what front receives. `rights` says what each
    user may write: {user: mqcore.journal.Rights(write=...)}, or a function of the Peer, which runs
    on the device's thread: it may neither wait nor close the socket. If front is a journal's reader
    as well, the device mirrors its messages: see mqcore/journal/README.md. These return objects
    with the methods of a Device."""
    if hasattr(back, "_mq_sink"):
        if capture is not None or allow_bus or hooks:
            raise UsageError("a journal device does not support capture, allow_bus and hooks",
                             hint="call mqcore.device(front, writer)")
        if hasattr(front, "_mq_mirror"):
            _check_rights(rights)
            return front._mq_mirror(back)
        from mqcore.api.recorder import Recorder

        return Recorder(front, back, rights)
    _check_rights(rights)
    return Device(front, front if back is None else back, capture, allow_bus=allow_bus,
                  hooks=hooks)
