"""ZAP 1.0 (RFC 27): servers ask the handler that the program bound to inproc://zeromq.zap.01 in the
same context, a REP or a ROUTER.

When servers ask follows libzmq's rules (4.3). PLAIN always asks, and refuses all peers without a
handler. CURVE asks if there is a handler, else it accepts every peer that has the server's key.
NULL asks if the socket has a ZAP domain. With ZAP_ENFORCE_DOMAIN a server with a domain refuses all
peers without a handler, and CURVE without a domain does not ask.

Everything runs on the context's control thread, which never waits here. The requests of all
handshakes go through one DEALER, a Line, which exists as long as the handler is bound. A reply
names its request. A reply without that answers the oldest request, because a handler replies once
to each.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import mqcore as mq
from mqcore.api.context import Context
from mqcore.api.patterns import Dealer
from mqcore.base.waits import start_behind
from mqcore.security import STATUSES, AuthHandler, AuthRequest, properties
from mqcore.zmq.constants import Errno, Event
from mqcore.zmq.fd import Edge

if TYPE_CHECKING:
    from mqcore.zmq.home import Home

NAME = "zeromq.zap.01"
VERSION = b"1.0"
HANDLERS = ("rep", "router")
PARTS = 7  # of an answer: an empty one, version, request, status, text, user, metadata
WAITING = 1000  # requests, beside those that the handler's own RCVHWM lets in
SILENT = 300  # the peer gets no reason, as from libzmq without an authentication result

NOBODY = f"no ZAP handler is bound to inproc://{NAME} in this context"
BUSY = "the ZAP handler does not keep up with the handshakes"
LEFT = "the ZAP handler left before it answered"
FILTERED = "an IPC_FILTER option of the socket does not let in the peer's process"
NO_DOMAIN = "ZAP_ENFORCE_DOMAIN lets nobody in by PLAIN without a ZAP_DOMAIN"
MALFORMED = f"the ZAP handler's answer has not {PARTS - 1} parts behind an empty one"
BAD_VERSION = "the ZAP handler's answer is not of version 1.0"
BAD_REQUEST = "the ZAP handler's answer names no request"
BAD_STATUS = "the ZAP handler's answer has a status other than 200, 300, 400 and 500"
BAD_METADATA = "the ZAP handler's answer has metadata that is not readable"

_PROTOCOL, _NO_DETAIL = Event.HANDSHAKE_FAILED_PROTOCOL, Event.HANDSHAKE_FAILED_NO_DETAIL
#: what monitors tell of a handshake that failed for a reason with these words: event, value
FAULTS: dict[str, tuple[int, int]] = {
    MALFORMED: (_PROTOCOL, Event.PROTOCOL_ERROR_ZAP_MALFORMED_REPLY),
    BAD_VERSION: (_PROTOCOL, Event.PROTOCOL_ERROR_ZAP_BAD_VERSION),
    BAD_REQUEST: (_PROTOCOL, Event.PROTOCOL_ERROR_ZAP_BAD_REQUEST_ID),
    BAD_STATUS: (_PROTOCOL, Event.PROTOCOL_ERROR_ZAP_INVALID_STATUS_CODE),
    BAD_METADATA: (_PROTOCOL, Event.PROTOCOL_ERROR_ZAP_INVALID_METADATA),
    **dict.fromkeys((NOBODY, BUSY, LEFT, NO_DOMAIN, FILTERED), (_NO_DETAIL, Errno.EFAULT)),
    "the peer wants mechanism": (_PROTOCOL, Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH),
    "the peer is a client too": (_PROTOCOL, Event.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND),
    "does not open": (_PROTOCOL, Event.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC),
    "the peer left": (_NO_DETAIL, errno.EPIPE),
}
_STATUS = re.compile(r"we refused the peer \((\d00)\)|the peer refused: (\d00)")

Tell = Callable[[mq.security.AuthResult], None]


def told(reason: str) -> tuple[int, int]:
    """libzmq's event and value for a handshake that failed for this reason."""
    for words, found in FAULTS.items():
        if words in reason:
            return found
    match = _STATUS.search(reason)
    if match is None:
        return int(_NO_DETAIL), 0
    return int(Event.HANDSHAKE_FAILED_AUTH), int(match[1] or match[2])


class Gate(AuthHandler):
    """Authentication of one endpoint. `filters`: users, groups and processes of IPC_FILTER_*."""

    def __init__(self, home: Home, domain: bytes, enforce: bool,
                 filters: tuple[frozenset[int], ...] = ()) -> None:
        self._home = home
        self._domain = domain
        self._enforce = enforce
        self._filters = filters

    def begin(self, asking: AuthRequest, tell: Tell) -> None:
        owner = (asking.uid, asking.gid, asking.pid)
        if any(self._filters) and not any(
                one in those for one, those in zip(owner, self._filters, strict=True)):
            tell(mq.security.AuthResult(SILENT, FILTERED))
            return
        mechanism = asking.mechanism
        if not self._domain and mechanism == "PLAIN" and self._enforce:
            tell(mq.security.AuthResult(SILENT, NO_DOMAIN))
        elif not self._domain and (mechanism == "NULL" or self._enforce):
            tell(mq.security.AuthResult())
        elif not self._home.ask(self._request(asking), tell):
            closed = mechanism == "PLAIN" or self._enforce
            tell(mq.security.AuthResult(SILENT, NOBODY) if closed else mq.security.AuthResult())

    def _request(self, asking: AuthRequest) -> list[bytes]:
        address = asking.address
        if asking.uid is not None:  # libzmq's words for a local peer
            address = f"localhost:{asking.uid}:{asking.gid}:{asking.pid}"
        return [self._domain, address.encode("utf-8", "surrogateescape"), asking.identity,
                asking.mechanism.encode(), *asking.credentials]


class Handler:
    """The handler of one context, as its servers see it. On the control thread."""

    def __init__(self) -> None:
        self._line: Line | None = None

    def ask(self, context: Context, request: list[bytes], tell: Tell) -> bool:
        """Send the request. False: no handler is bound."""
        hub = context._hub
        bound = hub.inproc.get(NAME)
        if bound is None or bound[0].plugin.name not in HANDLERS:
            return False
        if self._line is None or self._line.ended:
            self._line = Line(context)
        self._line.ask(request, tell)
        return True

    def end(self) -> None:
        if self._line is not None:
            self._line.end()


class Line:
    """Requests under way to the handler that is bound now. It ends when the handler leaves."""

    def __init__(self, context: Context) -> None:
        self.ended = False
        self._loop = context._hub.loop
        self._asked = 0
        self._waiting: dict[bytes, Tell] = {}
        self._dealer = Dealer(context=context, linger=0, send_hwm=WAITING, send_hwm_bytes=None)
        self._dealer.connect(f"inproc://{NAME}")
        self._edge = Edge(self._dealer)
        self._loop.add_reader(self._edge.fd, self._read)
        self._dealer._links.watchers.append(self._seen)

    def ask(self, request: list[bytes], tell: Tell) -> None:
        self._asked += 1
        number = b"%d" % self._asked
        self._waiting[number] = tell
        try:
            self._dealer.send_parts([b"", VERSION, number, *request], timeout=0)
        except mq.Error as error:
            del self._waiting[number]
            why = BUSY if isinstance(error, mq.SendTimeout) else LEFT
            tell(mq.security.AuthResult(SILENT, why))

    def _read(self) -> None:
        self._edge.calm()
        while not self.ended:
            try:
                parts = self._dealer.recv_parts(timeout=0)
            except mq.RecvTimeout:
                return
            except mq.Error:
                self.end()
                return
            number, verdict = verdict_of(parts)
            if not number.isdigit() or not 0 < int(number) <= self._asked:
                if number:
                    verdict = mq.security.AuthResult(SILENT, BAD_REQUEST)
                number = next(iter(self._waiting), b"")
            tell = self._waiting.pop(number, None)
            if tell is not None:  # else it is a second answer
                tell(verdict)

    def _seen(self, event: mq.Event) -> None:
        if event.kind == "Disconnected":
            self._loop.call(self.end)

    def end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._loop.remove(self._edge.fd)
        self._edge.close()
        try:  # not here: another thread that closes it may wait for this thread
            start_behind(partial(self._dealer.close, 0), "mqcore-close")
        except RuntimeError:  # the interpreter ends: there are no new threads
            self._dealer.close(0)
        waiting, self._waiting = self._waiting, {}
        for tell in waiting.values():
            tell(mq.security.AuthResult(SILENT, LEFT))


def verdict_of(parts: list[bytes]) -> tuple[bytes, mq.security.AuthResult]:
    """Which request a handler's answer is for, b"" if it does not say, and what it says."""
    if len(parts) != PARTS or parts[0]:
        return b"", mq.security.AuthResult(SILENT, MALFORMED)
    _, version, number, status, text, user, metadata = parts
    if not number:  # it would answer the oldest request, perhaps not the intended one
        return b"", mq.security.AuthResult(SILENT, BAD_REQUEST)
    if version != VERSION:
        return number, mq.security.AuthResult(SILENT, BAD_VERSION)
    if status not in (b"%d" % known for known in STATUSES):
        return number, mq.security.AuthResult(SILENT, BAD_STATUS)
    try:
        facts = properties(metadata)
    except mq.OptionError:
        return number, mq.security.AuthResult(SILENT, BAD_METADATA)
    return number, mq.security.AuthResult(
        int(status), text.decode("utf-8", "replace") or "the ZAP handler said so",
        user.decode("utf-8", "surrogateescape") or None, facts)
