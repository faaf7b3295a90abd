"""Authenticator: a ZAP handler that judges by addresses, passwords and keys."""

from __future__ import annotations

import inspect
import logging
import os
from hmac import compare_digest
from typing import Any

from mqcore.zmq.auth.certs import load_certificates
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno, SocketType
from mqcore.zmq.context import Context
from mqcore.zmq.error import make
from mqcore.zmq.socket import Socket
from mqcore.zmq.utils import z85

CURVE_ALLOW_ANY = "*"
VERSION = b"1.0"
HEAD = 6  # parts of a request before the credentials
ENDPOINT = "inproc://zeromq.zap.01"


class Authenticator:
    """The tables and the rules. ThreadAuthenticator and AsyncioAuthenticator run it. Without
    configuration it refuses all peers with PLAIN and CURVE and accepts all with NULL. Addresses are
    checked first."""

    context: Any
    encoding: str
    allow_any: bool  # any key of CURVE
    credentials_providers: dict[str, Any]
    zap_socket: Any
    passwords: dict[str, dict[str, str]]  # domain: user: password
    certs: dict[str, dict[bytes, bool]]  # domain: public key
    log: Any

    def __init__(self, context: Any = None, encoding: str = "utf-8", log: Any = None) -> None:
        self.context = context or Context.instance()
        self.encoding = encoding
        self.allow_any = False
        self.credentials_providers = {}
        self.zap_socket = None
        self._allowed: set[str] = set()
        self._denied: set[str] = set()
        self.passwords = {}
        self.certs = {}
        self.log = log or logging.getLogger("zmq.auth")

    def start(self) -> None:
        """Bind the handler's socket."""
        self.zap_socket = self.context.socket(SocketType.REP, socket_class=Socket)
        self.zap_socket.linger = 1
        self.zap_socket.bind(ENDPOINT)
        self.log.debug("Starting")

    def stop(self) -> None:
        """Close it."""
        if self.zap_socket:
            self.zap_socket.close()
        self.zap_socket = None

    # -- configuration -----------------------------------------------------------------------------

    def allow(self, *addresses: str) -> None:
        """Only these addresses may come; they are still asked for what else is configured.
        ValueError after deny()."""
        if self._denied:
            raise ValueError("Only use allow or deny, not both")
        self.log.debug("Allowing %s", ",".join(addresses))
        self._allowed.update(addresses)

    def deny(self, *addresses: str) -> None:
        """These addresses may not come. ValueError after allow()."""
        if self._allowed:
            raise ValueError("Only use allow or deny, not both")
        self.log.debug("Denying %s", ",".join(addresses))
        self._denied.update(addresses)

    def configure_plain(self, domain: str = "*", passwords: dict[str, str] | None = None) -> None:
        """Who may come by PLAIN: usernames and passwords. "*": of sockets without a domain."""
        if passwords:
            self.passwords[domain] = passwords
        self.log.debug("Configure plain: %s", domain)

    def configure_curve(self, domain: str = "*",
                        location: str | os.PathLike[str] = ".") -> None:
        """Set the clients accepted by CURVE: the keys of a folder's public certificates at this
        time; CURVE_ALLOW_ANY: every client that has the server's key."""
        self.log.debug("Configure curve: %s[%s]", domain, location)
        if location == CURVE_ALLOW_ANY:
            self.allow_any = True
            return
        self.allow_any = False
        try:
            self.certs[domain] = load_certificates(location)
        except Exception as error:
            self.log.error("Failed to load CURVE certs from %s: %s", location, error)

    def configure_curve_callback(self, domain: str = "*", credentials_provider: Any = None) -> None:
        """Who may come by CURVE: credentials_provider.callback(domain, key) says so, by True or
        False or something to await; the key is Z85 in bytes."""
        self.allow_any = False
        if credentials_provider is None:
            self.log.error("None credentials_provider provided for domain:%s", domain)
        else:
            self.credentials_providers[domain] = credentials_provider

    def curve_user_id(self, client_public_key: bytes) -> str:
        """The User-Id of a key that is let in: the key in Z85. To be overridden."""
        return z85.encode(client_public_key).decode("ascii")

    def configure_gssapi(self, domain: str = "*", location: str | None = None) -> None:
        """ENOTSUP: there is no GSSAPI."""
        raise make(Errno.ENOTSUP, "there is no GSSAPI; configure_curve() proves who is who")

    # -- requests ----------------------------------------------------------------------------------

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Answer one request."""
        if len(msg) < HEAD:
            self.log.error("Invalid ZAP message, not enough frames: %r", msg)
            self._send_zap_reply(msg[1] if len(msg) > 1 else b"", b"400", b"Not enough frames")
            return
        version, request_id, domain, address, identity, mechanism = msg[:HEAD]
        if version != VERSION:
            self.log.error("Invalid ZAP version: %r", msg)
            self._send_zap_reply(request_id, b"400", b"Invalid version")
            return
        where = address.decode(self.encoding, "replace")
        self.log.debug("version: %r, request_id: %r, domain: %r, address: %r, identity: %r, "
                       "mechanism: %r", version, request_id, domain, address, identity, mechanism)
        if self._allowed and where not in self._allowed:
            self._refuse(request_id, where, b"Address not allowed")
            return
        if where in self._denied:
            self._refuse(request_id, where, b"Address denied")
            return
        user = "anonymous"
        try:
            allowed, reason, user = await self._judge(
                domain.decode(self.encoding, "replace"), mechanism, msg[HEAD:])
        except Exception:  # a credentials provider's, say: the handler goes on
            self.log.exception("Authentication failed")
            self._send_zap_reply(request_id, b"500", b"Authentication failed")
            return
        if allowed:
            self._send_zap_reply(request_id, b"200", b"OK", user)
        else:
            self._refuse(request_id, where, reason)

    async def _judge(self, domain: str, mechanism: bytes,
                     credentials: list[bytes]) -> tuple[bool, bytes, str]:
        """Whether the peer is accepted, the reason if not, and its user."""
        if mechanism == b"NULL":
            return True, b"OK", "anonymous"
        if mechanism == b"PLAIN" and len(credentials) == 2:
            username, password = (one.decode(self.encoding, "replace") for one in credentials)
            return *self._authenticate_plain(domain, username, password), username
        if mechanism == b"CURVE" and len(credentials) == 1:
            allowed, reason = await self._authenticate_curve(domain, credentials[0])
            return allowed, reason, self.curve_user_id(credentials[0]) if allowed else ""
        if mechanism == b"GSSAPI" and len(credentials) == 1:
            principal = credentials[0]
            return *self._authenticate_gssapi(domain, principal), principal.decode("utf-8")
        if mechanism in (b"PLAIN", b"CURVE", b"GSSAPI"):
            return False, b"Invalid credentials", ""
        return False, b"Mechanism not supported", ""

    def _authenticate_plain(self, domain: str, username: str, password: str) -> tuple[bool, bytes]:
        if not self.passwords:
            return False, b"No passwords defined"
        users = self.passwords.get(domain or "*")
        if users is None:
            return False, b"Invalid domain"
        if username not in users:
            return False, b"Invalid username"
        if not compare_digest(password.encode(), users[username].encode()):
            return False, b"Invalid password"
        return True, b"OK"

    async def _authenticate_curve(self, domain: str, client_key: bytes) -> tuple[bool, bytes]:
        if self.allow_any:
            return True, b"OK"
        domain = domain or "*"
        key = z85.encode(client_key)
        if self.credentials_providers:
            provider = self.credentials_providers.get(domain)
            if provider is None:
                return False, b"Unknown domain"
            answer = provider.callback(domain, key)
            if inspect.isawaitable(answer):
                answer = await answer
            return (True, b"OK") if answer else (False, b"Unknown key")
        if domain not in self.certs:
            return False, b"Unknown domain"
        return (True, b"OK") if self.certs[domain].get(key) else (False, b"Unknown key")

    def _authenticate_gssapi(self, domain: str, principal: bytes) -> tuple[bool, bytes]:
        return True, b"OK"  # the requesting peer has proven that it owns the key

    def _refuse(self, request_id: bytes, address: str, reason: bytes) -> None:
        self.log.debug("DENIED address=%s: %s", address, reason.decode())
        self._send_zap_reply(request_id, b"400", reason)

    def _send_zap_reply(self, request_id: bytes, status_code: bytes, status_text: bytes,
                        user_id: str = "anonymous") -> None:
        user = user_id.encode(self.encoding, "replace") if status_code == b"200" else b""
        self.log.debug("ZAP reply code=%s text=%s", status_code, status_text)
        self.zap_socket.send_multipart([VERSION, request_id, status_code, status_text, user, b""])


__all__ = ["Authenticator", "CURVE_ALLOW_ANY"]

__getattr__ = lend(__name__)
