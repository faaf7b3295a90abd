"""Monitor: mqcore's events in libzmq's form, two parts each, from a PAIR socket.

libzmq puts a descriptor's number into the value of many events. Here the value is 0, except for
failed handshakes. As in libzmq, the event of a connection's end has our side's address.
"""

from __future__ import annotations

import struct
from typing import Any

import mqcore as mq
from mqcore.base.threads import Thread
from mqcore.base.waits import Released, guest
from mqcore.zmq.address import from_mqcore, text_of, to_mqcore
from mqcore.zmq.constants import Errno, Event
from mqcore.zmq.error import ZMQError, make, translated
from mqcore.zmq.zap import told

BACKLOG = 100_000  # events that wait for the thread below; more are lost
LINGER = 0.1  # seconds: who connects to the monitor late still gets what is queued until it ends
#: mqcore's kinds of events, except what needs a look (_numbers)
KINDS: dict[str, tuple[int, ...]] = {
    "Listening": (Event.LISTENING,), "Accepted": (Event.ACCEPTED,),
    "Connecting": (Event.CONNECT_DELAYED,), "Retrying": (Event.CONNECT_RETRIED,),
    "Disconnected": (Event.DISCONNECTED,),
    "Closed": (Event.CLOSED,), "AcceptPaused": (Event.ACCEPT_FAILED,),
}


class Monitor:
    """A thread that reads mqcore's events of a socket until it or the monitor is closed."""

    def __init__(self, core: Any, context: Any, addr: str | bytes, events: int) -> None:
        url = to_mqcore(text_of(addr))
        if not url.startswith("inproc://"):
            raise make(Errno.EPROTONOSUPPORT, "a monitor's address is inproc://")
        if events & ~int(Event.ALL_V2):
            raise ZMQError(Errno.EINVAL)
        self._events = events
        pair = None
        try:
            pair = mq.Pair(context=context, send_hwm=None, send_hwm_bytes=None, linger=LINGER)
            pair.bind(url)
            self._stream = core.events(backlog=BACKLOG)
        except mq.Error as error:
            if pair is not None:
                pair.close(0)
            raise translated(error) from error
        self._pair = pair
        self._thread = Thread(self._run, "mqcore-zmq-monitor")
        self._thread.start()

    def close(self) -> None:
        """EVENT_MONITOR_STOPPED is the last one."""
        self._stream.close()
        if not guest():     # see base/waits.pyx
            with Released():
                self._thread.join()

    def _run(self) -> None:
        bound = set()
        try:
            for event in self._stream:
                if event.kind == "Listening":
                    bound.add(event.endpoint)
                if event.kind == "HandshakeFailed":
                    self._tell(*told(event.reason), event.endpoint)
                for number in _numbers(event, bound):
                    self._tell(number, 0, event.endpoint)
            self._tell(Event.MONITOR_STOPPED, 0, "")
        except mq.Error:
            pass  # the context ends, and the PAIR with it
        finally:
            self._pair.close()

    def _tell(self, number: int, value: int, endpoint: str) -> None:
        if number & self._events:
            address = from_mqcore(endpoint).encode("utf-8", "surrogateescape") if endpoint else b""
            try:
                self._pair.send_parts([struct.pack("=Hi", number, value), address], timeout=0)
            except mq.SendTimeout:
                pass  # no socket is connected to the monitor: libzmq drops its events, too


def _numbers(event: mq.Event, bound: set[str]) -> tuple[int, ...]:
    if event.kind == "Connected":  # mqcore tells of it after the handshake
        raw = event.peer is not None and event.peer.wire == "raw"  # a STREAM's shakes no hands
        done = () if raw else (int(Event.HANDSHAKE_SUCCEEDED),)
        return done if event.endpoint in bound else (int(Event.CONNECTED), *done)
    if event.kind == "Closed" and not event.endpoint:
        return ()
    return KINDS.get(event.kind, ())
