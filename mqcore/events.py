"""The classes of a socket's events, for isinstance() and `match`. `Socket.events()` yields them.

    from mqcore import events

    for event in sock.events():
        match event:
            case events.Connected(peer=peer): print("welcome", peer)
            case events.Dropped(reason=reason): print("lost a message:", reason)

`event.kind` is the name of the class, as text. Some names are those of exceptions, too
(`HandshakeFailed`): exceptions are in `mqcore`, events are here.
"""

from mqcore.control.events import (
    Accepted,
    AcceptPaused,
    Closed,
    Connected,
    Connecting,
    Disconnected,
    Dropped,
    Event,
    FailedBack,
    FailedOver,
    HandshakeFailed,
    Idle,
    Kind,
    Listening,
    Lost,
    PatternFailed,
    Refused,
    Resolved,
    ResolveFailed,
    Retrying,
    Stopped,
    Subscribed,
    TooSlow,
    Unsubscribed,
)

__all__ = [
    "AcceptPaused", "Accepted", "Closed", "Connected", "Connecting", "Disconnected", "Dropped",
    "Event", "FailedBack", "FailedOver", "HandshakeFailed", "Idle", "Kind", "Listening",
    "Lost", "PatternFailed", "Refused", "ResolveFailed", "Resolved", "Retrying", "Stopped",
    "Subscribed", "TooSlow", "Unsubscribed",
]
