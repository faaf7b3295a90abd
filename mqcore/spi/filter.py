"""The plug-in interface of filters over a stream: bytes in, bytes out, with their own handshake.

TLS, WebSocket, compression, a proxy: a filter stands between a transport's descriptor and the
messaging protocol. It does no I/O. An entry point of the group `mqcore.filters` names an object
derived from `StreamFilter`. For each connection it opens one `FilterSession`. In a URL filters
stand before the transport, the outermost (nearest to the messages) first:
"zstd+tls+tcp://host:5555" compresses, then encrypts. Both sides need the same filters in the same
order.

Callers and threads:

    split, join, check  the caller of bind() and connect(); never block, do not use the network
    open                the control thread, once per connection; never blocks
    the session until `established`: the control thread; never blocks
    the session afterwards: the context's filter thread, one at a time, never a caller's thread
                        (so no signal handler runs inside); never blocks. A session in native
                        form: an I/O thread or a caller's

All contexts and threads share the StreamFilter object, so it keeps no state. A session belongs to
one connection and is used by one thread at a time. After the handshake a session has three choices.
It can remain a Python object: each call then takes the GIL, which is slower and may wait for a busy
Python program. It can return a native form (`native()`, see filter_ops.pxd). Or it can step out of
the way (`transparent`).

Besides the options by name, `options` has facts about the socket that no option can hide: their
keys have a dot. "pattern.name" is the pattern's name ("push"). "pattern.zmtp" is its name in ZMTP
("PUSH"), or "". "pattern.sp" is its protocol number in SP (spi/sp.py), or -1. "listen.address" is
the address of a listener, when its sessions are opened. A filter that carries one protocol only, or
must name it in its handshake, uses these and the option `wire` ("zmtp", "sp" or None).

Errors: AddressError (position within `address`), OptionError and UsageError from split and check.
`Refused` from the session: the peer did something that the filter forbids, or does not speak it.
Its text appears in events() and in the peer's HandshakeFailed, so it says what was found and what
to do. Any other exception of a session also ends its connection and is reported by its type.
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
    """One connection's filter. The base class passes everything through unchanged.

    Order of calls: `start` once; then `receive` for bytes from below and `send` for bytes from
    above, each followed by `outgoing`. If this side ends the connection, `finish` follows. `close`
    is always the last.
    """

    #: the filter's own handshake is over: `send` may be called, `receive` returns the stream above
    established: bool = True
    #: from now on bytes pass unchanged (such as when the kernel encrypts): the session is dropped.
    #: Read once, when the handshake is over
    transparent: bool = False
    #: the peer ended its stream in order (TLS close_notify): nothing follows
    ended: bool = False
    #: an orderly end is always announced (as in TLS): a connection that ends without was truncated
    ends: bool = False
    #: the protocol that this filter carries, "" for the socket's protocol as on a plain stream;
    #: "zws": ZMTP over WebSocket messages (RFC 45); "sp-ws": SP over them. Only the outermost
    #: filter may set it
    codec: str = ""
    #: `facts` were proven (by certificates, by keys), so they are also for Peer.verified. False:
    #: they are the peer's claims in the filter's handshake
    proves: bool = False

    def __init__(self) -> None:
        self._passing = bytearray()

    def start(self) -> None:
        """The stream below is open. Afterwards `outgoing` returns what to send first."""

    def receive(self, data: bytes) -> bytes:
        """Process bytes from below and return the resulting bytes for above. Takes all of `data`
        and keeps incomplete input for the next call. Raises Refused."""
        return data

    def send(self, data: Buffer) -> None:
        """Process bytes from above; not called before `established`. Takes all of `data`, which is
        valid only during the call."""
        self._passing += data

    def outgoing(self) -> bytes:
        """Return and remove the bytes to write below now. They must include everything that `send`
        got, so that a message never waits for the next one (a compressor flushes here)."""
        out, self._passing = bytes(self._passing), bytearray()
        return out

    def finish(self) -> None:
        """End the stream in order (close_notify). The bytes for that go to `outgoing`."""

    def close(self) -> None:
        """The connection is gone: release everything. Idempotent; must not raise."""

    def native(self) -> Any:
        """Return a NativeFilter (filter_ops.pxd) that continues from this session's state, or None
        to continue with this object. Called once, when the handshake is over and nothing is
        outgoing."""
        return None

    def facts(self) -> Mapping[str, bytes]:
        """What the handshake found out about the peer, for Peer.metadata ("tls-version"), where it
        overrides the peer's own claims of the same names. With `proves` also for Peer.verified,
        which contains no claims of peers. "user" sets Peer.user: the name that the peer has proven,
        b"" if none."""
        return {}


class BufferSession(FilterSession):
    """A session that writes its output into the host's memory, without a bytes object per piece. A
    filter that expands its input should use it: the host then asks for one piece at a time, whereas
    `receive` of a plain session must produce everything at once. During the handshake the host
    calls `receive` as usual, then `receive_into`."""

    #: an error behind the bytes just produced: set it instead of raising if there are such bytes;
    #: the next call raises it
    broken: Refused | None = None

    def receive_into(self, data: memoryview, out: memoryview) -> int:
        """Take all of `data`, write the output into `out` and return its size in bytes. If that
        fills `out`, there may be more: the host calls again with empty `data`. Both views are valid
        only during the call. Raises Refused."""
        raise NotImplementedError


class StreamFilter:
    abi: ClassVar[int] = FILTER_ABI
    kind: ClassVar[str] = "filter"
    name: ClassVar[str] = ""  # must be the entry point's name, as it stands in URLs
    doc: ClassVar[str] = ""  # one line for `mq info`
    capabilities: ClassVar[frozenset[str]] = frozenset()
    #: rows of its own options, as in StreamTransport.options
    options: ClassVar[tuple[tuple[Any, ...], ...]] = ()

    def split(self, address: str, role: str) -> tuple[str, Any]:
        """Split off the filter's own part of the address: (the address for below, own part).
        WebSocket removes a path, TLS copies the host. AddressError if its part is malformed."""
        return address, None

    def join(self, address: str, own: Any) -> str:
        """The reverse of split, for the URL that bind() returns."""
        return address

    def check(self, own: Any, role: str, options: Options) -> None:
        """Check that a session can be opened with these options. OptionError if not (no certificate
        to listen with, an unreadable file), which bind() and connect() then raise."""

    def open(self, own: Any, role: str, options: Options) -> FilterSession:
        """Open a session for one connection. `role` "bind": the peer connected to us; or
        "connect"."""
        raise NotImplementedError
