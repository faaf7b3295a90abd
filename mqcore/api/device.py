"""device(): messages of one socket go to another, and back, in the data plane.

A device owns its sockets while it runs: any other use of them raises UsageError. It holds at most
one burst of messages in its hand; everything else stays where back-pressure keeps it.

Each side speaks with each of its peers whatever that peer speaks, so a device with ZMTP on one side
and SP on the other is a bridge: nothing else is needed.

What keeps a message from going round for ever, where devices stand in a circle by mistake, is the
hop limit (option `max_hops`): requests and surveys carry the way they came, PAIR1 a count. What has
passed more devices is dropped and counted as `hop_limit`, at the peer that it came from. BUS,
PUB and PUSH carry neither; of these BUS goes both ways, so two devices in a circle are enough for
every message to come back for ever, each time once more. That is why a device refuses it.
"""

from __future__ import annotations

from typing import Any

from mqcore.api.records import DeviceStats
from mqcore.api.running import Running
from mqcore.control.records import CloseReport
from mqcore.errors import UsageError
from mqcore.sock.core import SocketCore
from mqcore.sock.device import DeviceCore
from mqcore.spi import registry
from mqcore.spi.drop import DROP_REASONS

HOP_LIMIT = [name for name, _ in DROP_REASONS].index("hop_limit")
#: what only means something to its counterpart: the words in front are those of one protocol
COUNTERPARTS = {"surveyor": "respondent", "respondent": "surveyor", "bus": "bus", "pair1": "pair1"}


class Device(Running):
    """A running device. stop() delivers what is in hand and closes both sockets, and the capture;
    reports: front, back, capture."""

    def __init__(self, front: Any, back: Any, capture: Any = None, *,
                 allow_bus: bool = False) -> None:
        self.front, self.back, self.capture = front, back, capture
        self._ends = tuple(dict.fromkeys((front, back, *([] if capture is None else [capture]))))
        _check(front, back, allow_bus)
        for end in dict.fromkeys((front, back)):
            _make_raw(end)
        self._core = DeviceCore(front, back, capture)
        self._begin("mqcore-device")

    def _loop(self) -> None:
        self._core.run()

    def stats(self) -> DeviceStats:
        looped = 0
        for end in dict.fromkeys((self.front, self.back)):
            accounts = end._accounts()
            for peer in (accounts["total"], *(facts for _, facts in accounts["live"])):
                looped += peer["in_dropped"][HOP_LIMIT]
        return DeviceStats(*self._core.counters(), looped)

    def pause(self) -> None:
        """Stop moving messages; they wait where they are. resume() goes on."""
        self._core.set_paused(True)

    def resume(self) -> None:
        self._core.set_paused(False)

    def _stop(self, linger: Any) -> tuple[CloseReport, ...]:
        self._core.stop()
        self._thread.join()
        seconds = self.back.linger if linger is ... else linger
        self._core.finish(1e9 if seconds is None else seconds)
        self._core.release()
        return tuple(end.close(linger) for end in self._ends)

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<Device {self.front.pattern} <-> {self.back.pattern} {state}>"


def _check(front: Any, back: Any, allow_bus: bool) -> None:
    """Do these two fit together, and are they no trap?"""
    for end in (front, back):
        if not isinstance(end, SocketCore):
            raise UsageError(f"the ends of a device are sockets, not {type(end).__name__}")
    names = (front.pattern, back.pattern)
    for name, other in (names, names[::-1]):
        partner = COUNTERPARTS.get(name, other)
        if other != partner:
            raise UsageError(f"a device with a {name} socket at one end needs a {partner} at the "
                             f"other, not a {other}", hint=f"take mqcore.{partner.capitalize()}")
    if front is back and names != ("bus", "bus"):
        raise UsageError("a device needs different sockets at its ends",
                         hint="only a bus can be sent back to those it did not come from")
    if names == ("bus", "bus") and not allow_bus:
        raise UsageError("a device does not join buses: a BUS message says nothing of the way it "
                         "came, so two devices in a circle send every message round for ever, "
                         "each time to everybody",
                         hint="let all members connect to each other, or use xsub and xpub; "
                              "allow_bus=True if there is one device and never a second way round")


def _make_raw(socket: Any) -> None:
    """The device owns the socket, so it may have it show its envelopes and take them back."""
    options = registry.pattern(socket.pattern).options
    if any(row[0] == "raw" for row in options):
        socket._set_pattern_option("raw", True)


def device(front: Any, back: Any = None, *, capture: Any = None,
           allow_bus: bool = False) -> Any:
    """Start moving messages between front and back. These fit together:

        router and dealer          a queue: requests to whoever is free, answers back
        respondent and surveyor    the same for surveys
        xsub and xpub, sub and pub a forwarder: to all who subscribed
        pull and push              a streamer: work from many, dealt out to many
        pair and pair, pair1 and pair1
        bus and bus                only with allow_bus=True, see below

    `capture` gets a copy of everything. Sockets that have a raw form (surveyor, respondent, bus,
    pair1) are switched to it; a req or rep has its own: dealer and router.

    A bus device is refused unless you say allow_bus=True: nothing in a BUS message tells where it
    has been, so with a second way round (two devices between the same two buses will do) each
    message comes back for ever and multiplies. With allow_bus=True one bus alone may be given: it
    then repeats to all others what each member says.

    With a journal's writer as back, what front receives is stored; with a journal's reader as front
    as well, its messages are mirrored: see mqcore/journal/README.md. What they give has the calls
    of a device."""
    if hasattr(back, "_mq_sink"):
        if capture is not None or allow_bus:
            raise UsageError("a device into a journal has no capture and no allow_bus",
                             hint="give mqcore.device(front, writer)")
        if hasattr(front, "_mq_mirror"):
            return front._mq_mirror(back)
        from mqcore.api.record import Recorder

        return Recorder(front, back)
    return Device(front, front if back is None else back, capture, allow_bus=allow_bus)
