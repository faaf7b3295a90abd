"""The second door: a filter over a stream. Bytes in, bytes out, with a handshake of its own.

TLS, WebSocket, compression, a proxy: what stands between a transport's descriptor and the wire. A
filter does no I/O. An entry point of the group `mqcore.filters` names an object derived from
`StreamFilter`; for each connection it opens one `FilterSession`. In a URL filters stand before the
transport, the outermost (the one nearest to the messages) first: "zstd+tls+tcp://host:5555"
compresses, then encrypts. Both sides need the same filters in the same order.

Who calls what, on which thread, may it block:

    split, join, check  the caller of bind() and connect(); never block, touch no network
    open                the control thread, once per connection; never blocks
    the session until `established`: the control thread; never blocks
    the session afterwards: the context's filter thread, one at a time, never an application's
                        thread (so no signal handler runs inside); never blocks. A session in
                        native form: an I/O thread or a caller

The StreamFilter object is shared by all contexts and threads and keeps no state of its own. A
session belongs to one connection and is called by one thread at a time. After the handshake a
session can stay what it is, a Python object: each call then takes the GIL, which is slower and may
wait for a busy Python program; it can hand over a native form (`native()`, see filter_ops.pxd); or
it can step out of the way (`transparent`).

`options` holds, besides the options by name, facts about the socket that no option can hide: those
keys have a dot. "pattern.name" is the pattern's ("push"), "pattern.zmtp" its name on ZMTP ("PUSH"),
"" if it has none; "pattern.sp" its protocol's number on SP (spi/sp.py), -1 if it has none. A filter
that carries one wire only, or must name it in its handshake, looks there and at the option `wire`
("zmtp", "sp" or None).

Errors: AddressError (position within `address`), OptionError and UsageError from split and check;
`Refused` from the session: the peer did what the filter forbids, or does not speak it. Its text
ends up in events() and in the peer's HandshakeFailed, so it says what was found and what to do.
Anything else that a session raises ends its connection likewise and is reported by its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

FILTER_ABI = 1

Options = Mapping[str, Any]
Buffer = bytes | bytearray | memoryview


class Refused(Exception):
    """The peer's bytes are not what the filter expects. The text says what they are instead."""


class FilterSession:
    """One connection's filter. The base class passes everything through.

    The order of calls: `start` once; then `receive` for bytes that came from below and `send` for
    bytes that come from above, each followed by `outgoing`; `finish` if we end the connection;
    `close` last of all, always.
    """

    #: the filter's own handshake is over: `send` may be called, `receive` gives the stream above
    established: bool = True
    #: from now on bytes pass unchanged (the kernel encrypts, say): the session is dropped. Looked
    #: at once, when the handshake is over
    transparent: bool = False
    #: the peer ended its stream in order (TLS close_notify): nothing comes after
    ended: bool = False
    #: the peer says so whenever it ends (as TLS does): a connection that ends without was cut off
    ends: bool = False
    #: wire format that this filter carries, "" for whatever the socket speaks as on a bare stream;
    #: "zws": ZMTP over WebSocket messages (RFC 45); "sp-ws": SP over them. Only the outermost
    #: filter may set it
    codec: str = ""
    #: `facts` were proven (by certificates, by keys): they are for Peer.verified, too. False: they
    #: are what the peer said in the filter's handshake
    proves: bool = False

    def __init__(self) -> None:
        self._passing = bytearray()

    def start(self) -> None:
        """The stream below is open. What to say first is then in `outgoing`."""

    def receive(self, data: bytes) -> bytes:
        """Bytes from below, all of which are taken; those for above that they make. Incomplete
        input is kept for the next call. Raises Refused."""
        return data

    def send(self, data: Buffer) -> None:
        """Bytes from above, all of which are taken, and none before `established`. `data` is valid
        during the call only."""
        self._passing += data

    def outgoing(self) -> bytes:
        """What is to be written below now: takes it out. Everything that `send` got must be in
        it, so that a single message never waits for the next one (a compressor flushes here)."""
        out, self._passing = bytes(self._passing), bytearray()
        return out

    def finish(self) -> None:
        """We end the stream in order (close_notify); whatever that takes is in `outgoing`."""

    def close(self) -> None:
        """The connection is gone: let go of everything. Idempotent; no raise."""

    def native(self) -> Any:
        """A NativeFilter (filter_ops.pxd) that goes on where this session stands, or None: this
        object goes on. Called once, when the handshake is over and nothing is outgoing."""
        return None

    def facts(self) -> Mapping[str, bytes]:
        """What the handshake found out about the peer, for Peer.metadata ("tls-version"), where it
        comes before anything that the peer itself says under the same names; with `proves` also
        for Peer.verified, where nothing else comes from a peer. "user" is for Peer.user: the name
        that the peer has proven, b"" if none."""
        return {}


class BufferSession(FilterSession):
    """A session that writes what it makes into the host's memory: no bytes object for each piece.
    A filter that expands its input should be one: the host asks for a piece at a time, while
    `receive` of a plain session must make everything at once.
    Until the handshake is over it is called like any other, then `receive_into` instead of
    `receive`."""

    #: what ends the stream behind the bytes that were just made: set instead of raised if there are
    #: such bytes, raised by the next call
    broken: Refused | None = None

    def receive_into(self, data: memoryview, out: memoryview) -> int:
        """Takes all of `data`, puts what it makes into `out` and returns how many bytes that are.
        If they fill `out` to the end there may be more: it is called again, with empty `data`. Both
        views are valid during the call only. Raises Refused."""
        raise NotImplementedError


class StreamFilter:
    abi: ClassVar[int] = FILTER_ABI
    kind: ClassVar[str] = "filter"
    name: ClassVar[str] = ""  # must be the entry point's name, as it stands in URLs
    doc: ClassVar[str] = ""  # one line for `mq info`
    capabilities: ClassVar[frozenset[str]] = frozenset()
    #: rows of its own options, as in StreamTransport.options
    options: ClassVar[tuple[tuple[str, str, Any, str], ...]] = ()

    def split(self, address: str, role: str) -> tuple[str, Any]:
        """(the address for what is below, the filter's own part of it). WebSocket takes a path off,
        TLS copies the host. AddressError if its part is malformed."""
        return address, None

    def join(self, address: str, own: Any) -> str:
        """The reverse of split, for the URL that bind() returns."""
        return address

    def check(self, own: Any, role: str, options: Options) -> None:
        """Can a session be opened with these options? OptionError if not (no certificate to listen
        with, a file that cannot be read), so that bind() and connect() raise it."""

    def open(self, own: Any, role: str, options: Options) -> FilterSession:
        """A session for one connection. `role` "bind": the peer connected to us; "connect"."""
        raise NotImplementedError
