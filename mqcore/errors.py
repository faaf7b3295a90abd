"""Every exception that mqcore raises, each with a stable `code` and a `hint`.

The text says what happened, with which endpoint or peer and for how long; the hint says what to do
next. `str(error)` is both. Programs test the class or the code, people read the text. Each class
lists its own facts in `fields`; they are keyword arguments of the constructor and attributes, and
an exception survives pickle and copy with all of them.
"""

from __future__ import annotations

import errno
import os
from typing import Any, ClassVar


class Error(Exception):
    """Base of all. `Error(text, hint=..., **fields)`."""

    code: ClassVar[str] = "error"
    hint: str = ""
    fields: ClassVar[dict[str, Any]] = {}  # name: default, inherited ones included

    def __init__(self, text: str = "", *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(text)
        self.text = text or (type(self).__doc__ or "").strip().split("\n")[0].rstrip(".")
        if hint is not None:
            self.hint = hint
        for name, default in self.fields.items():
            setattr(self, name, facts.pop(name, default))
        if facts:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(facts))}")

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}" if self.hint else self.text

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: getattr(self, name) for name in self.fields}
        return _rebuild, (type(self), self.text, self.hint, facts)


def _rebuild(kind: type[Error], text: str, hint: str, facts: dict[str, Any]) -> Error:
    return kind(text, hint=hint, **facts)


# -- time ------------------------------------------------------------------------------------------


class Timeout(Error, TimeoutError):
    """A call did not finish within its time."""

    code = "timeout"
    hint = "give more time with timeout=, or ask explain() what it waits for"


class SendTimeout(Timeout):
    """A message could not be given to any peer in time; it has not been taken."""

    code = "send_timeout"
    fields = {"sent": 0, "why": "no_peer", "peers": 0}
    sent: int
    why: str  # "no_peer" or "full"
    peers: int


class RecvTimeout(Timeout):
    """No message came in time."""

    code = "recv_timeout"


class WaitTimeout(Timeout):
    """What was waited for did not happen in time."""

    code = "wait_timeout"
    fields = {"have": 0, "want": 0, "why": ""}
    have: int
    want: int
    why: str


class ConnectTimeout(Timeout):
    """No handshaken connection in time."""

    code = "connect_timeout"
    hint = "is the peer running and reachable? `mq doctor URL` tries each step"
    fields = {"last": None}  # what the latest attempt failed with
    last: Error | None


# -- closed ----------------------------------------------------------------------------------------


class SocketClosed(Error):
    """The socket is closed."""

    code = "socket_closed"
    hint = "open a new socket"


class ContextClosed(Error):
    """The context is closed, and its sockets with it."""

    code = "context_closed"
    hint = "make a new Context"


class Forked(Error):
    """This object was made before a fork and belongs to the parent process."""

    code = "forked"
    hint = "open the socket in the process that uses it"


# -- misuse ----------------------------------------------------------------------------------------


class StateError(Error):
    """The pattern does not allow this call now."""

    code = "state"


class NotSubscribed(StateError):
    """This socket has no subscription, so nothing can ever arrive."""

    code = "not_subscribed"
    hint = 'call subscribe("topic") first; subscribe(b"") means everything'


class UsageError(Error, TypeError):
    """This call makes no sense on this object or with these arguments."""

    code = "usage"


class NotSupported(Error, NotImplementedError):
    """Not available in this build, on this system or on this transport."""

    code = "not_supported"


class OptionError(Error, ValueError):
    """An option is unknown, out of range, or does not belong here."""

    code = "option"


class MessageTooLarge(Error, ValueError):
    """The message is larger than allowed."""

    code = "message_too_large"


# -- addresses -------------------------------------------------------------------------------------


class AddressError(Error, ValueError):
    """An address cannot be understood. `position` is the index of the first wrong character."""

    code = "address"
    fields = {"position": 0}
    position: int


class UnknownTransport(AddressError):
    """No transport of this name is installed. `known` lists those that are."""

    code = "unknown_transport"
    fields = {"position": 0, "known": ()}
    known: tuple[str, ...]


class BindError(Error, OSError):
    """Listening failed. `errno` is the system's number."""

    code = "bind"
    fields = {"errno": None}

    @classmethod
    def of(cls, number: int, text: str, hint: str | None = None) -> BindError:
        """The subclass that fits the errno, with the system's words added."""
        kind: type[BindError] = {
            errno.EADDRINUSE: AddressInUse,
            errno.EADDRNOTAVAIL: AddressNotAvailable,
            errno.ENODEV: AddressNotAvailable,
            errno.EAFNOSUPPORT: AddressNotAvailable,
            errno.ENOENT: AddressNotAvailable,
            errno.ENOTDIR: AddressNotAvailable,
            errno.EACCES: AddressDenied,
            errno.EPERM: AddressDenied,
            errno.EROFS: AddressDenied,
        }.get(number, BindError)
        return kind(f"{text}: {os.strerror(number)}", hint=hint, errno=number)


class AddressInUse(BindError):
    """Somebody listens there already."""

    code = "address_in_use"
    hint = "close the other one, or bind to another address (port 0 picks a free one)"


class AddressNotAvailable(BindError):
    """This machine has no such address."""

    code = "address_not_available"
    hint = "bind to an address or interface of this machine, or to * for all"


class AddressDenied(BindError):
    """The system does not permit listening there."""

    code = "address_denied"
    hint = "ports below 1024 and other people's folders need permission; choose another"


# -- peers -----------------------------------------------------------------------------------------


class PeerError(Error):
    """Something went wrong with a peer."""

    code = "peer"


class NoSuchPeer(PeerError):
    """No peer of this name is connected; the message has not been taken."""

    code = "no_such_peer"
    hint = "it may have left; peers() lists who is there, mandatory=False drops instead (counted)"


class PeerGone(PeerError):
    """The peer that owed an answer has left."""

    code = "peer_gone"


class HandshakeFailed(PeerError):
    """A connection was made, but the two sides did not come to terms. `reason` says why."""

    code = "handshake_failed"
    fields = {"reason": ""}
    reason: str


class RemoteRefused(PeerError):
    """Nobody listens there, or the listener sent us away."""

    code = "remote_refused"
    hint = "is the other side running, and is the address right?"


# -- warnings --------------------------------------------------------------------------------------


class BlockingCallWarning(RuntimeWarning):
    """A blocking call had to wait in a thread in which an event loop runs."""


# -- plug-ins --------------------------------------------------------------------------------------


class PluginError(Error):
    """A plug-in cannot be used. `distribution` brought it, `remedy` is what to do."""

    code = "plugin"
    fields = {"distribution": "", "remedy": ""}
    distribution: str
    remedy: str


def all_errors() -> tuple[type[Error], ...]:
    """Every class of this module, base first: what tests and the reference walk."""
    return tuple(v for v in globals().values() if isinstance(v, type) and issubclass(v, Error))
