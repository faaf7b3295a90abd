"""tls+tcp://host:port (tls+ipc, wss ...): TLS 1.2 and 1.3 over any stream, with Python's ssl
module.

A connecting socket verifies the server's certificate against tls_ca (or the system's CAs) and
against the host of its URL. A listening socket shows its own certificate; with tls_ca it only
accepts clients with a certificate of that CA. Weaker settings must be explicit. The results of the
handshake are in Peer.verified ("tls-version", "tls-subject" ...), and the name in a verified
certificate is Peer.user.

The session is an `SSLObject` between two memory BIOs: no I/O, no descriptor. A stream ends with
close_notify, which distinguishes a closed connection from a truncated one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, cast

from mqcore.transports.tls_context import Contexts
from mqcore.transports.tls_reasons import Side, reason

from mqcore.base.strangers import stranger
from mqcore.errors import AddressError, OptionError
from mqcore.spi.filter import Buffer, BufferSession, Options, Refused, StreamFilter
from mqcore.spi.inet import parse

RECORD = 16 * 1024  # maximum of plain bytes in one record (RFC 8446, section 5.1)
FIRST = (0x15, 0x16)  # records that a peer may begin with: alert, handshake
# An alert for a peer that does not speak TLS: a TLS record with "protocol version", so that the
# other side can report what it received.
NO_TLS = bytes.fromhex("15 0301 0002 02 46")
NOT_TLS = {
    "ZMTP": "the peer speaks ZMTP without TLS: put tls+ before the transport there, or take it "
            "off here",
    "SP": "the peer speaks SP without TLS: it must use TLS too",
    "HTTP or WebSocket": "the peer speaks HTTP or WebSocket without TLS: https and wss are what "
                         "fits here",
    "zstd": "the peer speaks zstd without TLS: the filters must be the same, in the same order",
}


# -- one connection --------------------------------------------------------------------------------


def _escaped(value: object) -> str:
    """Escape a value as in RFC 4514, so that no name can imitate two."""
    return str(value).replace("\\", "\\\\").replace(",", "\\,")


class TlsSession(BufferSession):
    established = False
    ends = True
    proves = True

    def __init__(self, ours: Ours, context: ssl.SSLContext) -> None:
        self._ours = ours
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._alert = b""
        self._left = b""    # decrypted, and not read yet when this side ended
        self._known = False  # whether the peer's first bytes were TLS
        serving = ours.role == "bind"
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=serving,
            server_hostname=ours.hostname or None if not serving else None,
            session=ours.ticket_for(context))

    def start(self) -> None:
        if self._ours.role == "connect":
            self._shake()

    def receive(self, data: bytes) -> bytes:
        if self.broken is not None:
            raise self.broken
        if not self._known and data:
            self._look(data)
        self._in.write(data)
        if not self.established:
            self._shake()
            if not self.established:
                return b""
        made, pieces = RECORD, []
        while made == RECORD:  # the maximum size of a record: there may be more
            out = bytearray(RECORD)
            made = self.receive_into(memoryview(b""), memoryview(out))
            pieces.append(out[:made])
            if self.broken is not None:
                break
        return b"".join(pieces)

    def receive_into(self, data: memoryview, out: memoryview) -> int:
        if self.broken is not None:
            raise self.broken
        if data:
            self._in.write(data)
        # with a buffer it returns a number, which the stubs of Python do not say
        read = cast("Callable[[int, memoryview], int]", self._tls.read)
        made, room = min(len(self._left), len(out)), len(out)
        if made:
            out[:made], self._left = self._left[:made], self._left[made:]
        try:
            while made < room and (n := read(room - made, out[made:])):
                made += n
            self.ended = made < room
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # this side has ended its half, too
            self.ended = True
        except ssl.SSLError as error:
            refused = self._refused(error)
            if not made:  # data before the fault counts
                raise refused from None
        return made

    def send(self, data: Buffer) -> None:
        try:
            if data:
                self._tls.write(data)  # writes all of it: a memory BIO takes everything
        except ssl.SSLError as error:
            raise self._refused(error) from None

    def outgoing(self) -> bytes:
        alert, self._alert = self._alert, b""
        return self._out.read() + alert if alert else self._out.read()

    def finish(self) -> None:
        """Send close_notify without waiting for the peer's. What has arrived is read later:
        unwrap() would look at it, and refuse all the rest."""
        if self.established and self.broken is None:
            try:
                if n := self._tls.pending():
                    self._left += self._tls.read(n)
                came = self._in.read()
                try:
                    self._tls.unwrap()
                finally:
                    self._in.write(came)
            except (ssl.SSLError, ValueError):  # it waits for the peer's, or the stream is broken
                pass

    def close(self) -> None:
        if self.established and self._ours.role == "connect":
            self._ours.keep(self._tls.context, self._tls.session)

    def facts(self) -> Mapping[str, bytes]:
        found = {"tls-version": self._tls.version() or "", "tls-cipher": (self._tls.cipher() or
                                                                          ("",))[0]}
        shown: Any = self._tls.getpeercert() or {}  # {} also for an unverified certificate
        names = [f"{kind}:{_escaped(name)}" for kind, name in shown.get("subjectAltName", ())]
        parts = [pair for part in shown.get("subject", ()) for pair in part]
        found["tls-subject"] = ", ".join(f"{SHORT.get(key, key)}={_escaped(value)}"
                                         for key, value in parts)
        found["tls-names"] = ", ".join(names)
        first = next((str(name) for _, name in shown.get("subjectAltName", ())), "")
        found["user"] = dict(parts).get("commonName") or first
        return {name: text.encode() for name, text in found.items()}

    # -- inside ------------------------------------------------------------------------------------

    def _look(self, data: bytes) -> None:
        """Check that the peer's first bytes are TLS."""
        self._known = True
        if data[0] not in FIRST:
            self._alert = NO_TLS
            name = stranger(data)
            self.broken = Refused(NOT_TLS.get(name) or f"the peer speaks {name}, not TLS"
                                   if name else "the peer does not speak TLS")
            raise self.broken

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise self._refused(error) from None
        self.established = True

    def _refused(self, error: ssl.SSLError) -> Refused:
        self.broken = Refused(reason(error, self._ours.side))
        return self.broken


SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU",
         "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST"}


# -- one endpoint ----------------------------------------------------------------------------------


class Ours:
    """The filter's state for one endpoint: the host of its URL, its context, and the last session
    ticket of the server, which shortens the next handshake with it."""

    def __init__(self, role: str, host: str) -> None:
        self.role = role
        self.host = host
        self.hostname = ""
        self.side = Side("", "", "")
        self._contexts: Contexts | None = None
        self._ticket: tuple[ssl.SSLContext, ssl.SSLSession] | None = None

    def __eq__(self, other: object) -> bool:
        """Equal if it belongs to the same part of an address."""
        return isinstance(other, Ours) and (self.role, self.host) == (other.role, other.host)

    def context(self, options: Options) -> ssl.SSLContext:
        if self._contexts is None:
            contexts = Contexts(self.role, options)
            self.hostname = options["tls_hostname"] or self.host
            self.side = Side("client" if self.role == "bind" else "server", self.hostname,
                             f"tls_ca {options['tls_ca']}" if options["tls_ca"] else
                             "the system's CAs")
            made = contexts.get()
            if self.role == "connect" and made.check_hostname and not self.hostname:
                raise OptionError("this address has no host name to verify the certificate "
                                  "against", hint='set tls_hostname, or tls_verify="ca" to accept '
                                                  "any server with a certificate of the CA")
            self._contexts = contexts
        return self._contexts.get()

    def ticket_for(self, context: ssl.SSLContext) -> ssl.SSLSession | None:
        if self._ticket is None or self._ticket[0] is not context:
            return None
        return self._ticket[1]

    def keep(self, context: ssl.SSLContext, ticket: ssl.SSLSession | None) -> None:
        if ticket is not None and ticket.has_ticket:
            self._ticket = context, ticket


class Tls(StreamFilter):
    name = "tls"
    doc = "TLS 1.2 and 1.3: encryption, and authentication by certificates"
    options = (
        ("tls_cert", "text", None, "the certificate to show, a PEM file that also has the CA "
                                   "certificates between it and the root; None: no certificate, "
                                   "for connecting sockets only"),
        ("tls_key", "text", None, "its private key, a PEM file that other users cannot read; None: "
                                  "in the file of tls_cert"),
        ("tls_key_password", "secret", None, "the password of an encrypted key; never in a URL"),
        ("tls_ca", "text", None, "trusted CAs: a PEM file of certificates, or a folder of such "
                                 "files; None: the system's"),
        ("tls_verify", "choice", "full", "how a connecting socket verifies a server: certificate "
                                         "and host name, certificate only, or not at all",
         ("full", "ca", "none")),
        ("tls_hostname", "text", None, "the name that the server must have, also sent as "
                                       "SNI; None: the URL's host"),
        ("tls_mutual", "bool", None, "a listening socket only accepts clients with a "
                                     "certificate of tls_ca; None: yes if tls_ca is given"),
        ("tls_min_version", "choice", "1.2", "the oldest TLS version to accept", ("1.2", "1.3")),
        ("tls_context", "object", None, "your own context instead of these options (except "
                                        "beside it); never in a URL", (ssl.SSLContext,)),
    )

    def split(self, address: str, role: str) -> tuple[str, Ours]:
        host = ""
        if role == "connect":
            try:
                host = parse(address, role)[1].host.partition("%")[0]
            except AddressError:  # such as a path, which has no host
                pass
        return address, Ours(role, host)

    def check(self, own: Ours, role: str, options: Options) -> None:
        self.open(own, role, options).close()

    def open(self, own: Ours, role: str, options: Options) -> TlsSession:
        context = own.context(options)
        try:
            return TlsSession(own, context)
        except (ssl.SSLError, ValueError, UnicodeError) as error:
            raise OptionError(f"tls cannot ask for a server named {own.hostname!r}: {error}",
                              hint="set tls_hostname to the name in its certificate") from None


filter = Tls()
