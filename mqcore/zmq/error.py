"""pyzmq's exceptions with libzmq's numbers, and mqcore's errors as these."""

from __future__ import annotations

import errno as _errno
import os
from typing import Any

import mqcore as mq
from mqcore.base.native import threading
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno

WORDS = {
    Errno.EFSM: "Operation cannot be accomplished in current state",
    Errno.ENOCOMPATPROTO: "The protocol is not compatible with the socket type",
    Errno.ETERM: "Context was terminated",
    Errno.EMTHREAD: "No thread available",
    Errno.EHOSTUNREACH: "Host unreachable",
}
#: the first row that fits; a subclass stands before its base
TRANSLATION: tuple[tuple[type[mq.Error], int], ...] = (
    (mq.SendTimeout, Errno.EAGAIN),
    (mq.RecvTimeout, Errno.EAGAIN),
    (mq.Timeout, Errno.ETIMEDOUT),
    (mq.SocketClosed, Errno.ENOTSOCK),
    (mq.ContextClosed, Errno.ETERM),
    (mq.Forked, Errno.ENOTSOCK),
    (mq.StateError, Errno.EFSM),
    (mq.UnknownTransport, Errno.EPROTONOSUPPORT),
    (mq.AddressError, Errno.EINVAL),
    (mq.NoSuchPeer, Errno.EHOSTUNREACH),
    (mq.PeerGone, Errno.ECONNRESET),
    (mq.PeerError, Errno.ECONNREFUSED),
    (mq.OptionError, Errno.EINVAL),
    (mq.MessageTooLarge, Errno.EMSGSIZE),
    (mq.UsageError, Errno.ENOTSUP),
    (mq.NotSupported, Errno.ENOTSUP),
)
_last = threading.local()


def strerror(errno: int) -> str:
    """libzmq's words for a number."""
    words = WORDS.get(errno)  # type: ignore[call-overload]
    return words if words is not None else os.strerror(errno)


def zmq_errno() -> int:
    """The number of the error that this thread had last."""
    return getattr(_last, "errno", 0)


class DraftFDWarning(RuntimeWarning):
    """Of pyzmq's draft sockets without a descriptor. Ours have one; nothing warns so."""

    def __init__(self, msg: str = "") -> None:
        super().__init__(msg or "pyzmq's thread-safe sockets have no descriptor")


class ZMQBaseError(Exception):
    """Base of all."""


class ZMQError(ZMQBaseError):
    """A call failed with libzmq's number `errno`; `strerror` says what happened."""

    errno: int | None = None
    strerror: str

    def __init__(self, errno: int | None = None, msg: str | None = None) -> None:
        if errno is None:
            errno = zmq_errno()
        if isinstance(errno, int):
            self.errno = errno
            _last.errno = errno
            self.strerror = strerror(errno) if msg is None else msg
        else:
            self.strerror = str(errno) if msg is None else msg

    def __str__(self) -> str:
        return self.strerror

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:
        return type(self), (self.errno, self.strerror)


class ZMQBindError(ZMQBaseError):
    """bind_to_random_port() found no free port."""


class NotDone(ZMQBaseError):
    """A MessageTracker's time is over and the message still in use."""


class _Fixed(ZMQError):
    """One with a number of its own, whatever it is given."""

    number = 0

    def __init__(self, errno: Any = "ignored", msg: str = "ignored") -> None:
        super().__init__(self.number)


class ContextTerminated(_Fixed):
    """ETERM: the context is being terminated; close the socket."""

    number = Errno.ETERM


class Again(_Fixed):
    """EAGAIN: it would have to wait, or time is up."""

    number = Errno.EAGAIN


class InterruptedSystemCall(_Fixed, InterruptedError):  # type: ignore[misc]  # as in pyzmq
    """EINTR. mqcore goes on after a signal; kept for programs that catch it."""

    number = _errno.EINTR

    def __str__(self) -> str:
        return f"{self.errno}: {super().__str__()}"


class ZMQVersionError(NotImplementedError):
    """A feature that this version lacks."""

    def __init__(self, min_version: str, msg: str = "Feature") -> None:
        super().__init__(min_version, msg)
        self.min_version = min_version
        self.msg = msg

    def __repr__(self) -> str:
        return f"ZMQVersionError({self!s})"

    def __str__(self) -> str:
        return f"{self.msg} requires libzmq >= {self.min_version}"


def number_of(error: mq.Error) -> int:
    """libzmq's number for one of mqcore's errors."""
    if isinstance(error, mq.BindError):
        unknown = "no such host or interface" in error.text
        return _errno.ENODEV if unknown else error.errno or Errno.EINVAL
    if isinstance(error, mq.UsageError) and "cannot send this message" in error.text:
        return Errno.EINVAL
    for kind, number in TRANSLATION:
        if isinstance(error, kind):
            return number
    return Errno.EINVAL


def make(number: int, text: str = "") -> ZMQError:
    """The exception of this number; `text` is what happened here."""
    if number == Errno.EAGAIN:
        return Again()
    if number == Errno.ETERM:
        return ContextTerminated()
    return ZMQError(number, f"{strerror(number)}: {text}" if text else None)


def translated(error: mq.Error) -> ZMQError:
    return make(number_of(error), error.text)


__getattr__ = lend(__name__)
