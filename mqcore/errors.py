"""All exceptions that mqcore raises. Each has a stable `code` and a `hint`.

The text says what happened, with which endpoint or peer, and for how long. The hint says what to do
next. `str(error)` contains both. Programs should test the class or the code, not the text. Each
class lists its attributes in `fields`; the constructor takes them as keyword arguments. Pickling
and copying an exception keep all of them.
"""

from __future__ import annotations

import errno
import os
from typing import Any, ClassVar

NO_FILES = (errno.EMFILE, errno.ENFILE)
MORE_FILES = "raise the limit of open files (`ulimit -n`), or close some, and try again"    # a hint


class Error(Exception):
    """Base class of all mqcore errors. `Error(text, hint=..., **fields)`."""

    code: ClassVar[str] = "error"
    hint: str = ""
    fields: ClassVar[dict[str, Any]] = {}  # name: default, including inherited fields

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
    """The call did not finish in time."""

    code = "timeout"
    hint = "use a longer timeout=, or call explain() to see what the socket waits for"


class SendTimeout(Timeout):
    """No peer could take the message in time, so it was not sent."""

    code = "send_timeout"
    fields = {"sent": 0, "why": "no_peer", "peers": 0}
    sent: int
    why: str  # "no_peer" or "full"
    peers: int


class RecvTimeout(Timeout):
    """No message arrived in time."""

    code = "recv_timeout"


class WaitTimeout(Timeout):
    """The awaited condition did not become true in time."""

    code = "wait_timeout"
    fields = {"have": 0, "want": 0, "why": ""}
    have: int
    want: int
    why: str


class ConnectTimeout(Timeout):
    """No connection completed its handshake in time."""

    code = "connect_timeout"
    hint = "is the peer running and reachable? `mq doctor URL` tries each step"
    fields = {"last": None}  # the error of the latest attempt
    last: Error | None


# -- closed ----------------------------------------------------------------------------------------


class SocketClosed(Error):
    """The socket is closed."""

    code = "socket_closed"
    hint = "open a new socket"


class ContextClosed(Error):
    """The context and all its sockets are closed."""

    code = "context_closed"
    hint = "make a new Context"


class Forked(Error):
    """This object was created before a fork and belongs to the parent process."""

    code = "forked"
    hint = "open the socket in the process that uses it"


class HookError(Error):
    """A hook with on_error="stop" failed, and its device has ended. `hook` is the hook's name; the
    cause is the exception that it raised."""

    code = "hook"
    fields = {"hook": ""}
    hint = 'correct the hook, or use on_error="drop" to lose the message and go on'
    hook: str


# -- misuse ----------------------------------------------------------------------------------------


class StateError(Error):
    """The pattern does not allow this call in its current state."""

    code = "state"


class NotSubscribed(StateError):
    """This socket has no subscription, so no message can arrive."""

    code = "not_subscribed"
    hint = 'call subscribe("topic") first; subscribe(b"") subscribes to everything'


class UsageError(Error, TypeError):
    """This call makes no sense on this object or with these arguments."""

    code = "usage"


class NotSupported(Error, NotImplementedError):
    """Not supported by this build, this system or this transport."""

    code = "not_supported"


class OptionError(Error, ValueError):
    """An option is unknown, out of range, or does not belong here."""

    code = "option"


class MessageTooLarge(Error, ValueError):
    """The message is larger than allowed."""

    code = "message_too_large"


# -- addresses -------------------------------------------------------------------------------------


class AddressError(Error, ValueError):
    """An address is malformed. `position` is the index of the first wrong character."""

    code = "address"
    fields = {"position": 0}
    position: int


class UnknownTransport(AddressError):
    """No transport of this name is installed. `known` lists the installed ones."""

    code = "unknown_transport"
    fields = {"position": 0, "known": ()}
    known: tuple[str, ...]


class BindError(Error, OSError):
    """Listening failed. `errno` is the system's error number."""

    code = "bind"
    fields = {"errno": None}

    @classmethod
    def of(cls, number: int, text: str, hint: str | None = None) -> BindError:
        """The subclass for this errno. The system's error text is appended to `text`."""
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
        if hint is None and number in NO_FILES:
            hint = MORE_FILES
        return kind(f"{text}: {os.strerror(number)}", hint=hint, errno=number)


class AddressInUse(BindError):
    """The address is in use."""

    code = "address_in_use"
    hint = "close the other listener, or bind to another address (port 0 picks a free one)"


class AddressNotAvailable(BindError):
    """This machine has no such address."""

    code = "address_not_available"
    hint = "bind to an address or interface of this machine, or to * for all"


class AddressDenied(BindError):
    """The system denies permission to listen at this address."""

    code = "address_denied"
    hint = "ports below 1024 and folders of other users need permission; choose another address"


# -- peers -----------------------------------------------------------------------------------------


class PeerError(Error):
    """An operation with a peer failed."""

    code = "peer"


class NoSuchPeer(PeerError):
    """No peer of this name is connected, so the message was not sent."""

    code = "no_such_peer"
    hint = "it may have left; peers() lists who is connected; mandatory=False drops (and counts)"


class PeerGone(PeerError):
    """The peer disconnected before it replied."""

    code = "peer_gone"


class HandshakeFailed(PeerError):
    """The connection was made, but the handshake failed. `reason` says why."""

    code = "handshake_failed"
    fields = {"reason": ""}
    reason: str


class RemoteRefused(PeerError):
    """Nothing listens at the address, or the listener refused the connection."""

    code = "remote_refused"
    hint = "is the other side running, and is the address right?"


# -- warnings --------------------------------------------------------------------------------------


class BlockingCallWarning(RuntimeWarning):
    """A blocking call waited in a thread that runs an event loop."""


# -- plug-ins --------------------------------------------------------------------------------------


class PluginError(Error):
    """A plug-in cannot be used. `distribution` is its package, `remedy` is what to do."""

    code = "plugin"
    fields = {"distribution": "", "remedy": ""}
    distribution: str
    remedy: str


def all_errors() -> tuple[type[Error], ...]:
    """Every error class of this module, base class first. Tests and the reference use it."""
    return tuple(v for v in globals().values() if isinstance(v, type) and issubclass(v, Error))
