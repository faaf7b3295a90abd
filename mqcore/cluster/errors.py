"""What a cluster raises, in the form of `mqcore.errors`: a `code`, a `hint`, and facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mqcore.base.waits import program_may_end
from mqcore.errors import MORE_FILES, NO_FILES, Error, Timeout


class ClusterError(Error):
    """A call on a cluster failed."""

    code = "cluster"


class KeyRejected(ClusterError):
    """The other side does not hold this cluster's key. `peer` is its address or node id, `why` one
    of "key" (no secret in common) and "banned"."""

    code = "key_rejected"
    hint = "give all nodes one key file; `mq cluster doctor` compares keys without showing them"
    fields = {"peer": "", "why": "key"}
    peer: str
    why: str


class KeyFileError(ClusterError):
    """A key file cannot be read or written. `path` is the file, `line` the faulty line, 0 if the
    fault concerns the file as a whole."""

    code = "key_file"
    hint = "make a key with cluster.Key.generate().save(path)"
    fields = {"path": "", "line": 0}
    path: str
    line: int


class IdentityError(ClusterError):
    """The file with a node's identity cannot be used. `path` is the file."""

    code = "identity"
    hint = "name a file of its own for each node"
    fields = {"path": ""}
    path: str


class NoiseError(ClusterError):
    """A Noise message was refused, and the handshake or the cipher is still safe to discard.

    `reason` is one of
    "authentication" (wrong key, or the bytes were changed), "size" (too short or too long), "key"
    (a public key that is not a usable point), "order" (a call at the wrong time) and "nonce"
    (2**64-1 messages have been sealed: make a new link).
    """

    code = "noise"
    hint = "close the link; check that both ends hold the same cluster key"
    fields = {"reason": "authentication"}
    reason: str


def without_files(error: BaseException) -> BaseException:
    """What join() raises for this: the same, or what to do if the process has no descriptor left,
    and the error does not say so itself."""
    if not isinstance(error, OSError) or isinstance(error, Error) or error.errno not in NO_FILES:
        return error
    return OSError(error.errno, f"cannot join the cluster: {error.strerror}; {MORE_FILES}")


def split(error: BaseException | None,
          kinds: type[BaseException] | tuple[type[BaseException], ...]) \
        -> tuple[BaseException | None, BaseException | None]:
    """What of an exception, which may be a group or none, is of these kinds, and the rest."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


def contained(function: Callable[..., Any], *args: Any) -> Any:
    """A future cannot carry StopIteration: who waits for it would wait for ever."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error


class Ending(Exception):
    """The interpreter ends, and begins nothing more in a thread. Nothing is wrong with what was to
    run there, and it has not run."""


@contextmanager
def beginning(leaving: bool) -> Iterator[None]:
    """What begins a thread, or gives something to a pool, within this raises Ending for that.
    `leaving`: it may be the node that ends, and not the interpreter."""
    try:
        yield
    except RuntimeError as error:       # its text is all that CPython tells
        if "shutdown" not in str(error):
            raise
        if not leaving:
            program_may_end()
        raise Ending("the process ends") from error


# -- calls on services -----------------------------------------------------------------------------


class NodeClosed(ClusterError):
    """This node has left the cluster."""

    code = "node_closed"
    hint = "join again"


class NoSuchService(ClusterError):
    """No live member offers this service. `service` is its name."""

    code = "no_such_service"
    hint = ("call wait_members() to wait for a member, or `mq cluster members` to see which "
            "services there are")
    fields = {"service": ""}
    service: str


class RequestTimeout(Timeout):
    """The service did not answer in time. `service` is its name, `tried` the number of members that
    had the request."""

    code = "request_timeout"
    hint = "allow more time, or see explain() for the members' load"
    fields = {"service": "", "tried": 0}
    service: str
    tried: int


class Overloaded(ClusterError):
    """Every member that received the request is at its limit, drains, or takes no requests. The
    request has not run."""

    code = "overloaded"
    hint = "send less, start more members, or raise concurrency= and queue_bytes= of aserve()"
    fields = {"service": "", "tried": 0}
    service: str
    tried: int


class MemberLost(ClusterError):
    """The connection to the member broke before its answer. The request may have run."""

    code = "member_lost"
    hint = "repeat it if it is safe to run twice; with idempotent=True the cluster does that"
    fields = {"service": "", "member": ""}
    service: str
    member: str


class RemoteError(ClusterError):
    """The service raised an exception. `kind` is its type's name, `text` its text."""

    code = "remote"
    fields = {"service": "", "kind": ""}
    service: str
    kind: str


class TunnelClosed(ClusterError):
    """The tunnel has ended. `reason` is "eof" (the other side has sent all), "closed" (by either
    side, before it had sent all), "fault" or "cancelled" (the other side's handler or `with` block
    ended by an exception), "lost" (its link broke), "refused", or what reset() was given."""

    code = "tunnel_closed"
    hint = "open a new tunnel"
    fields = {"reason": "closed"}
    reason: str


class MalformedFrame(ClusterError):
    """A peer sent bytes that are no frame of the cluster's protocol."""

    code = "malformed_frame"
    hint = "the link is closed; check that all nodes run compatible versions"
