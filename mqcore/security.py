"""Authentication and encryption of sockets: ZMTP's mechanisms NULL, PLAIN and CURVE.

    from mqcore.security import Curve, curve_keypair

    key = curve_keypair()                                   # once; or `mq keygen`
    server = mq.Rep(bind=url, security=Curve(secret_key=key.secret, allow={client.public}))
    client = mq.Req(connect=url, security=Curve(server_key=key.public, secret_key=client.secret))

Both sides must use the same mechanism, or the handshake fails. mqcore copies secrets into memory
that is not swapped, where the system allows it. It clears that memory when the last socket and the
last object that use it are gone. Clearing the values that you pass in is up to you.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mqcore.base.secret import Secret
from mqcore.base.sodium import keypair, public_of
from mqcore.errors import OptionError
from mqcore.keys import (
    KEY,
    Bytes,
    KeyPair,
    curve_keypair,
    curve_public,
    z85_decode,
    z85_encode,
)
from mqcore.keys import key_bytes as key_bytes  # for mqcore.zmq too
from mqcore.keys import need_sodium as need_sodium

if TYPE_CHECKING:
    from mqcore.certificates import (
        Certificate,
        load_certificate,
        load_certificates,
        save_certificate,
    )

__all__ = [
    "ANY", "AuthCallback", "AuthHandler", "AuthRequest", "AuthResult", "Certificate", "Curve",
    "KeyPair", "Null", "Plain", "Security", "curve_keypair", "curve_public", "load_certificate",
    "load_certificates", "save_certificate", "z85_decode", "z85_encode",
]

STATUSES = (200, 300, 400, 500)


class _Any:
    """The type of ANY."""

    def __repr__(self) -> str:
        return "mqcore.security.ANY"


ANY = _Any()  # Curve(allow=ANY): the server accepts every key


def __getattr__(name: str) -> Any:
    if "certificate" in name.lower() and name in __all__:
        from mqcore import certificates  # rare, so that it is imported when it is needed

        return getattr(certificates, name)
    raise AttributeError(f"module 'mqcore.security' has no attribute {name!r}")


def properties(raw: bytes) -> dict[str, bytes]:
    """Parse properties in the format of ZMTP (RFC 23) and ZAP (RFC 27): one byte with the length of
    the name, the name, four bytes with the length of the value, the value. If a name occurs twice,
    the first value counts. OptionError if the data is truncated."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(raw):
        name = raw[at + 1:at + 1 + raw[at]].decode("latin-1")
        at += 1 + raw[at]
        size = int.from_bytes(raw[at:at + 4], "big")
        if at + 4 + size > len(raw):
            raise OptionError("the properties are truncated")
        found.setdefault(name, raw[at + 4:at + 4 + size])
        at += 4 + size
    return found


# -- authentication callbacks --------------------------------------------------------------------


@dataclass(frozen=True)
class AuthRequest:
    """A peer that asks to connect, as ZAP (RFC 27) describes it to an authentication handler.
    `address`: the peer's address without a port. `endpoint`: our URL. `identity`: our routing
    id."""

    domain: str
    address: str
    identity: bytes
    mechanism: str
    credentials: tuple[bytes, ...] = field(repr=False)
    endpoint: str = ""
    #: of an ipc peer: its process, user and group at the time of connecting (SO_PEERCRED)
    pid: int | None = None
    uid: int | None = None
    gid: int | None = None

    @property
    def username(self) -> str:
        """PLAIN's username; "" for other mechanisms."""
        return self.credentials[0].decode("utf-8", "replace") if self.mechanism == "PLAIN" else ""

    @property
    def password(self) -> str:
        """PLAIN's password; "" for other mechanisms."""
        return self.credentials[1].decode("utf-8", "replace") if self.mechanism == "PLAIN" else ""

    @property
    def key(self) -> str:
        """The peer's public key in Z85; CURVE has proven that it owns the secret key. "" for other
        mechanisms."""
        return z85_encode(self.credentials[0]) if self.mechanism == "CURVE" else ""


@dataclass(frozen=True)
class AuthResult:
    """The result of an authentication. `status`: ZAP's (200 accepted, 300 try later, 400 refused,
    500 internal error). `text`: the reason, for our events only; the peer receives just the number.
    `user` and `metadata` describe an accepted peer: they become `Peer.user` and part of
    `Peer.metadata`."""

    status: int = 200
    text: str = ""
    user: str | None = None
    metadata: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise OptionError(f"AuthResult.status must be one of {STATUSES}, not {self.status!r}")
        if not isinstance(self.text, str):
            raise OptionError(f"the text of an AuthResult must be str, "
                              f"not {type(self.text).__name__}")
        if not isinstance(self.user, str | None):
            raise OptionError(f"the user of an AuthResult must be str or None, "
                              f"not {type(self.user).__name__}")
        if not isinstance(self.metadata, Mapping) or not all(
                isinstance(name, str) and isinstance(value, bytes)
                for name, value in self.metadata.items()):
            raise OptionError("the metadata of an AuthResult must be a mapping of str to bytes",
                              hint='AuthResult(metadata={"team": b"blue"})')


class AuthHandler:
    """An asynchronous authentication callback: it never blocks, so it needs no thread of its
    own."""

    def begin(self, asking: AuthRequest, tell: Callable[[AuthResult], None]) -> None:
        """Start a decision. Runs on the control thread and must not block. Call tell() once, now or
        later, from any thread. It is safe to call it for a peer that has disconnected meanwhile or
        whose handshake_timeout has expired."""
        raise NotImplementedError


Answer: TypeAlias = "bool | str | AuthResult"
AuthCallback: TypeAlias = "Callable[[AuthRequest], Answer] | AuthHandler"


def authenticate(ask: Callable[[AuthRequest], Answer], asking: AuthRequest) -> AuthResult:
    """Call an authentication callback and convert its result to an AuthResult. True means 200. A
    str means 200 and is the user's name. False or None means 400. Any other type means 500.
    Exceptions of the callback pass through."""
    answer = ask(asking)
    if isinstance(answer, AuthResult):
        return answer
    if answer is True:
        return AuthResult()
    if isinstance(answer, str):
        return AuthResult(user=answer)
    if answer is False or answer is None:
        return AuthResult(400, "allow() said no")
    return AuthResult(500, f"allow() returned {type(answer).__name__}; it must be True, False, a "
                        "name or an AuthResult")


# -- the mechanisms --------------------------------------------------------------------------------


def _is_callback(allow: Any) -> bool:
    """Whether `allow` is a callback rather than a collection."""
    return callable(allow) or isinstance(allow, AuthHandler)


def _wrong_allow(allow: Any, want: str) -> OptionError:
    return OptionError(f"allow= must be {want}, not {_kind(allow)}", hint="see help() of the class")


def _kind(value: Any) -> str:
    """Describe a value by its type; the value itself may be secret."""
    return repr(value) if isinstance(value, _Any | bool | None) else type(value).__name__


def _domain(domain: Any) -> str:
    if not isinstance(domain, str):
        raise OptionError(f"domain= must be text, not {type(domain).__name__}")
    return domain


class Security:
    """Base class of the three mechanisms. Any number of sockets may share one object."""

    mechanism = ""
    server = False
    allow: Any = None
    domain = ""
    _native: Any = None  # the native form of this object, created on first use

    @property
    def demands(self) -> bool:
        """Whether peers must authenticate."""
        return self.mechanism != "NULL" or self.allow is not None

    def user_of(self, proof: bytes) -> str | None:
        """The user name of a peer, from its proven credentials."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'server' if self.server else 'client'})"

    def __reduce__(self) -> Any:
        raise TypeError("secrets cannot be pickled; load them in the process that uses them")


class _Users(AuthHandler):
    """Accepts peers whose user id is in a table."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names

    def begin(self, asking: AuthRequest, tell: Callable[[AuthResult], None]) -> None:
        if asking.uid is None:
            tell(AuthResult(400, "the peer has no user id: allow= with user ids needs ipc://"))
        elif asking.uid not in self.names:
            tell(AuthResult(400, f"its user id {asking.uid} is not among those allowed"))
        else:
            tell(AuthResult(user=self.names[asking.uid]))


class Null(Security):
    """No keys and no passwords. Null() overrides a default of the socket or the context.

    `allow` restricts access to users of this machine who connect over ipc. Pass a collection of
    user ids, or a mapping of user ids to names. The kernel supplies the id of a peer. The name, or
    else the id as text, becomes `Peer.user`. You can also pass a callable (see `Curve`): for ipc
    peers, its AuthRequest has `uid`, `gid` and `pid`. Either side, or both, may set `allow`.
    """

    mechanism = "NULL"

    def __init__(self, *, allow: Collection[int] | Mapping[int, str] | AuthCallback | None = None,
                 domain: str = "") -> None:
        self.domain = _domain(domain)
        if allow is None or _is_callback(allow):
            self.allow = allow
            return
        if not isinstance(allow, Iterable):
            raise _wrong_allow(allow, "user ids, a mapping of them to names, or a callable")
        names = allow if isinstance(allow, Mapping) else {uid: str(uid) for uid in allow}
        if any(isinstance(uid, bool) or not isinstance(uid, int) or uid < 0 for uid in names):
            raise OptionError("allow= of Null() takes user ids, which are numbers",
                              hint="pwd.getpwnam(name).pw_uid is the id of a user name")
        _check_names(names)
        self.allow = _Users(dict(names))

    def __repr__(self) -> str:
        return "Null(allow=...)" if self.demands else "Null()"


def _check_names(names: Mapping[Any, Any]) -> None:
    """Check the user names of an allow= mapping."""
    for name in names.values():
        if not isinstance(name, str):
            raise OptionError(f"a name in allow= must be text, not {type(name).__name__}")


def _packed(rows: Iterable[tuple[str | Bytes, str | Bytes]]) -> Secret:
    """Usernames and passwords, each preceded by its length in one byte."""
    packed = bytearray()
    for row in rows:
        for value, what in zip(row, ("username", "password"), strict=True):
            try:
                data = value.encode() if isinstance(value, str) else bytes(memoryview(value))
            except TypeError:
                raise OptionError(f"a {what} must be text or bytes, "
                                  f"not {type(value).__name__}") from None
            if len(data) > 255:
                raise OptionError(f"a {what} has at most 255 bytes")
            packed += bytes([len(data)]) + data
    secret = Secret(packed)
    packed[:] = bytes(len(packed))
    return secret


class Plain(Security):
    """Username and password. PLAIN (RFC 24) does not encrypt anything, so use it over tls+tcp://,
    or over ipc:// with a folder that only its users can enter.

    A client passes `username` and `password`. A server passes `allow`: a mapping of usernames to
    passwords, or a callable (see `Curve`).
    """

    mechanism = "PLAIN"

    def __init__(self, username: str | Bytes | None = None, password: str | Bytes = "", *,
                 allow: Mapping[str, str | Bytes] | AuthCallback | None = None,
                 domain: str = "") -> None:
        if (username is None) == (allow is None):
            raise OptionError("Plain() needs either a username and password, or allow=",
                              hint="a server passes allow=, a client username and password")
        if not (allow is None or _is_callback(allow) or isinstance(allow, Mapping)):
            raise _wrong_allow(allow, "a mapping of usernames to passwords, or a callable")
        self.server = username is None
        self.allow = allow if _is_callback(allow) else None
        self.domain = _domain(domain)
        if username is not None:
            self.logins = _packed([(username, password)])
        else:
            self.logins = _packed(allow.items() if isinstance(allow, Mapping) else ())

    def user_of(self, proof: bytes) -> str | None:
        return proof.decode("utf-8", "replace") if self.server else None


class Curve(Security):
    """Authenticates and encrypts with elliptic-curve keys (RFC 25 and 26). No third party can read,
    change or replay messages, and each side knows the other's identity. A key is 40 characters of
    Z85 or 32 bytes.

    A client passes the server's public key as `server_key`. Without a `secret_key` of its own, the
    client generates a new key pair and is anonymous. A server passes its `secret_key` and `allow`,
    which is required and may be:

    - a collection of public keys: only these may connect
    - a mapping of public keys to user names (`Peer.user`)
    - a callable, which is called with an `AuthRequest` for each peer
    - `mqcore.security.ANY`: every key may connect, so any client that has the server's public key
      is accepted

    A callable returns True, False, a user name or an `AuthResult`. It runs on a thread of its own
    and may block for as long as the handshake may take. If it raises, the peer is refused with
    status 500. `domain` is passed on to it.
    """

    mechanism = "CURVE"

    def __init__(self, server_key: str | Bytes | None = None, *,
                 secret_key: str | Bytes | None = None,
                 allow: (Collection[str | bytes] | Mapping[str | bytes, str] | AuthCallback | _Any
                         | None) = None, domain: str = "") -> None:
        need_sodium()
        if server_key is None and secret_key is None:
            raise OptionError("Curve() needs server_key (a client) or secret_key (a server)",
                              hint="make a pair with curve_keypair() or `mq keygen`")
        if server_key is None and allow is None:
            raise OptionError("Curve(secret_key=...) without server_key is a server, and must set "
                              "allow=",
                              hint="pass allow={client's public key, ...}, or "
                                   "allow=mqcore.security.ANY to accept every key")
        if not (isinstance(allow, Iterable | _Any | None) or _is_callback(allow)):
            raise _wrong_allow(allow, "a collection of keys, a mapping of them to names, a "
                                      "callable, or mqcore.security.ANY")
        if server_key is not None and allow is not None:
            raise OptionError("a client cannot use allow=, which is for servers",
                              hint="server_key identifies the server")
        self.server = server_key is None
        self.server_key = b"" if server_key is None else key_bytes(server_key, "server_key")
        own = keypair()[1] if secret_key is None else bytearray(
            key_bytes(secret_key, "secret_key"))
        self.secret = Secret(own)
        own[:] = bytes(KEY)
        self.allow = allow if _is_callback(allow) else None
        self.domain = _domain(domain)
        self.keys: frozenset[bytes] | None = None
        self._names: dict[bytes, str] = {}
        if isinstance(allow, (str, bytes)):
            raise OptionError("allow= must be a collection of keys", hint="write allow={key}")
        if not (allow is None or isinstance(allow, (_Any, AuthHandler)) or callable(allow)):
            self.keys = frozenset(key_bytes(key, "a key in allow") for key in allow)
            if isinstance(allow, Mapping):
                _check_names(allow)
                self._names = {key_bytes(key): name for key, name in allow.items()}

    @property
    def public_key(self) -> str:
        """Our public key in Z85. Peers need it."""
        return z85_encode(public_of(self.secret))

    def user_of(self, proof: bytes) -> str | None:
        return self._names.get(proof) or (z85_encode(proof) if len(proof) == KEY else None)
