"""nng's errors as exceptions, and mqcore's errors as these.

The numbers and names are nng's; the text is mqcore's, which says what happened and what to do. What
mqcore raised is the `__cause__`.
"""

from __future__ import annotations

import errno
import os

from mqcore import errors as ours


class NNGException(Exception):
    """Base of all but MessageStateError. `errno` is nng's number."""

    def __init__(self, msg: str, errno: int) -> None:
        super().__init__(msg)
        self.errno = errno


class Interrupted(NNGException): ...
class NoMemory(NNGException): ...
class InvalidOperation(NNGException): ...
class Busy(NNGException): ...
class Timeout(NNGException): ...
class ConnectionRefused(NNGException): ...
class Closed(NNGException): ...
class TryAgain(NNGException): ...
class NotSupported(NNGException): ...
class AddressInUse(NNGException): ...
class BadState(NNGException): ...
class NoEntry(NNGException): ...
class ProtocolError(NNGException): ...
class DestinationUnreachable(NNGException): ...
class AddressInvalid(NNGException): ...
class PermissionDenied(NNGException): ...
class MessageTooLarge(NNGException): ...
class ConnectionAborted(NNGException): ...
class ConnectionReset(NNGException): ...
class Canceled(NNGException): ...
class OutOfFiles(NNGException): ...
class OutOfSpace(NNGException): ...
class AlreadyExists(NNGException): ...
class ReadOnly(NNGException): ...
class WriteOnly(NNGException): ...
class CryptoError(NNGException): ...
class AuthenticationError(NNGException): ...
class NoArgument(NNGException): ...
class Ambiguous(NNGException): ...
class BadType(NNGException): ...
class Internal(NNGException): ...


class MessageStateError(Exception):
    """A message was sent a second time."""


#: nng's number: its class
EXCEPTION_MAP: dict[int, type[NNGException]] = {
    1: Interrupted,
    2: NoMemory,
    3: InvalidOperation,
    4: Busy,
    5: Timeout,
    6: ConnectionRefused,
    7: Closed,
    8: TryAgain,
    9: NotSupported,
    10: AddressInUse,
    11: BadState,
    12: NoEntry,
    13: ProtocolError,
    14: DestinationUnreachable,
    15: AddressInvalid,
    16: PermissionDenied,
    17: MessageTooLarge,
    18: ConnectionAborted,
    19: ConnectionReset,
    20: Canceled,
    21: OutOfFiles,
    22: OutOfSpace,
    23: AlreadyExists,
    24: ReadOnly,
    25: WriteOnly,
    26: CryptoError,
    27: AuthenticationError,
    28: NoArgument,
    29: Ambiguous,
    30: BadType,
    1000: Internal,
}
NUMBERS = {kind: number for number, kind in EXCEPTION_MAP.items()}
SYSTEM = 0x10000000  # the bit of a number that is the system's errno

#: the first that fits; a subclass stands before its base
TRANSLATION: tuple[tuple[type[ours.Error], type[NNGException]], ...] = (
    (ours.Timeout, Timeout),
    (ours.SocketClosed, Closed),
    (ours.ContextClosed, Closed),
    (ours.Forked, Closed),
    (ours.NotSubscribed, NoEntry),
    (ours.StateError, BadState),
    (ours.UnknownTransport, NotSupported),
    (ours.AddressError, AddressInvalid),
    (ours.AddressInUse, AddressInUse),
    (ours.AddressNotAvailable, AddressInvalid),
    (ours.AddressDenied, PermissionDenied),
    (ours.BindError, AddressInvalid),
    (ours.NoSuchPeer, DestinationUnreachable),
    (ours.PeerGone, ConnectionReset),
    (ours.RemoteRefused, ConnectionRefused),
    (ours.HandshakeFailed, ProtocolError),
    (ours.MessageTooLarge, MessageTooLarge),
    (ours.NotSupported, NotSupported),
    (ours.UsageError, NotSupported),
    (ours.OptionError, InvalidOperation),
    (ours.PluginError, NotSupported),
)
#: of an AddressNotAvailable: what its number says more exactly
BY_ERRNO = {errno.ENOENT: NoEntry, errno.ENOTDIR: NoEntry}


def make(kind: type[NNGException], text: str) -> NNGException:
    """One of this class, with its number."""
    return kind(text, NUMBERS.get(kind, NUMBERS[Internal]))


def translated(error: ours.Error, block: bool = True) -> NNGException:
    """What nng has for one of mqcore's errors. Not `block`: out of time is TryAgain."""
    if isinstance(error, ours.Timeout) and not block:
        return make(TryAgain, str(error))
    if isinstance(error, ours.BindError) and error.errno in BY_ERRNO:
        return make(BY_ERRNO[error.errno], str(error))
    if isinstance(error, ours.PeerError) and "cannot look up" in error.text:
        return make(AddressInvalid, str(error))
    for kind, theirs in TRANSLATION:
        if isinstance(error, kind):
            return make(theirs, str(error))
    return make(ConnectionAborted if isinstance(error, ours.PeerError) else Internal, str(error))


def check_err(err: int) -> None:
    """Raise the exception for nng's error number. 0 means no error."""
    if err == 0:
        return
    kind = EXCEPTION_MAP.get(err, NNGException)
    text = os.strerror(err - SYSTEM) if err & SYSTEM else _words(kind.__name__)
    raise kind(text if kind is not NNGException or err & SYSTEM else f"error {err}", err)


def _words(name: str) -> str:
    """ConnectionRefused -> "connection refused"."""
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in name)
    return spaced.strip()
