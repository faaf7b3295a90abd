"""Who may talk to a socket, and what nobody else may read: ZMTP's mechanisms as an application
states them.

    key = mq.curve_keypair()                                # once; or `mq keygen`
    server = mq.Rep(bind=url, security=mq.Curve(secret_key=key.secret, allow={client.public}))
    client = mq.Req(connect=url, security=mq.Curve(server_key=key.public,
                                                   secret_key=client.secret))

Both sides must name the same mechanism, else they do not come to terms. What is secret is copied
into memory that is not swapped where the system allows it, and cleared when the last socket and
the last object that use it are gone; what the caller passes in is the caller's to clear.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from mqcore.base.secret import Secret
from mqcore.base.sodium import keypair, public_of, sodium_ready
from mqcore.errors import NotSupported, OptionError

KEY = 32  # bytes
TEXT = 40  # characters of the same in Z85
Z85 = ("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")
_DIGITS = {digit: value for value, digit in enumerate(Z85)}
STATUSES = (200, 300, 400, 500)

Bytes: TypeAlias = "bytes | bytearray | memoryview | Secret"


class _Any:
    """The type of ANY."""

    def __repr__(self) -> str:
        return "mqcore.ANY"


ANY = _Any()  # allow=ANY of Curve(): a server accepts every key


# -- keys ------------------------------------------------------------------------------------------


def z85_encode(data: Bytes) -> str:
    """Z85 (RFC 32) of bytes, whose number must be a multiple of 4."""
    raw = bytes(memoryview(data))
    if len(raw) % 4:
        raise OptionError(f"Z85 wants a multiple of 4 bytes, not {len(raw)}")
    text = []
    for at in range(0, len(raw), 4):
        word = int.from_bytes(raw[at:at + 4], "big")
        text += [Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(text)


def z85_decode(text: str) -> bytes:
    """The bytes that `text` stands for. OptionError if it is no Z85."""
    data = bytearray()
    if len(text) % 5:
        raise OptionError(f"Z85 has a multiple of 5 characters, not {len(text)}")
    for at in range(0, len(text), 5):
        word = 0
        for digit in text[at:at + 5]:
            if digit not in _DIGITS:
                raise OptionError("there is a character that Z85 does not have")
            word = word * 85 + _DIGITS[digit]
        if word >> 32:
            raise OptionError("five of its characters stand for more than 32 bits: no Z85")
        data += word.to_bytes(4, "big")
    return bytes(data)


def _key_hint(given: Any, what: str) -> str:
    """What was meant by something that is no key."""
    half = "secret" if "secret" in what else "public"
    if hasattr(given, "public") and hasattr(given, "secret"):  # a Certificate, a KeyPair
        return f"give its .{half}"
    if isinstance(given, os.PathLike) or (isinstance(given, str) and (
            os.path.exists(given) or given.endswith((".key", ".key_secret")))):
        return f"load_certificate(path).{half} is the key in a file"
    return "make a pair with curve_keypair() or `mq keygen`"


def key_bytes(key: str | Bytes, what: str = "a key") -> bytes:
    """A key of 32 bytes, from Z85 text of 40 characters, that text in ASCII, or the bytes."""
    if isinstance(key, str):
        if len(key) != TEXT:
            raise OptionError(f"{what} is 40 characters of Z85 or 32 bytes, "
                              f"not {len(key)} characters", hint=_key_hint(key, what))
        try:
            return z85_decode(key)
        except OptionError as error:
            raise OptionError(f"{what} is not readable: {error.text}") from None
    try:
        data = bytes(memoryview(key))
    except TypeError:
        raise OptionError(f"{what} is 40 characters of Z85 or 32 bytes, "
                          f"not {type(key).__name__}", hint=_key_hint(key, what)) from None
    if len(data) == TEXT:
        return key_bytes(data.decode("latin-1"), what)
    if len(data) != KEY:
        raise OptionError(f"{what} is 40 characters of Z85 or 32 bytes, not {len(data)} bytes")
    return data


def need_sodium() -> str:
    """The version of libsodium. NotSupported says what to install."""
    version = sodium_ready()
    if not version:
        raise NotSupported("CURVE needs libsodium, which this system does not have",
                           hint="install it: apt install libsodium23, dnf install libsodium, "
                                "apk add libsodium; PLAIN and TLS (tls+tcp://) do without it")
    return version


class KeyPair(NamedTuple):
    """A CURVE key pair in Z85. The public half is for everybody, the secret one for nobody."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret=...)"


def curve_keypair() -> KeyPair:
    """A new key pair. NotSupported without libsodium."""
    need_sodium()
    public, secret = keypair()
    return KeyPair(z85_encode(public), z85_encode(secret))


def curve_public(secret: str | Bytes) -> str:
    """The public key, in Z85, that belongs to a secret one."""
    need_sodium()
    return z85_encode(public_of(key_bytes(secret, "a secret key")))


def properties(raw: bytes) -> dict[str, bytes]:
    """Names and values as ZMTP and ZAP have them: the name's length in a byte, the name, the
    value's in four, the value. The first of a doubled name counts. OptionError if it is cut off."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(raw):
        name = raw[at + 1:at + 1 + raw[at]].decode("latin-1")
        at += 1 + raw[at]
        size = int.from_bytes(raw[at:at + 4], "big")
        if at + 4 + size > len(raw):
            raise OptionError("properties end in the middle of one")
        found.setdefault(name, raw[at + 4:at + 4 + size])
        at += 4 + size
    return found


# -- who is asked ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """A peer that wants to come in, as ZAP (RFC 27) describes it to who decides. `address`: the
    peer's, without a port; `endpoint`: ours, a URL. `identity`: our own routing id."""

    domain: str
    address: str
    identity: bytes
    mechanism: str
    credentials: tuple[bytes, ...] = field(repr=False)
    endpoint: str = ""
    #: of an ipc peer, from the kernel: its process, user and group when it connected (SO_PEERCRED)
    pid: int | None = None
    uid: int | None = None
    gid: int | None = None

    @property
    def username(self) -> str:
        """PLAIN's; "" with CURVE."""
        return self.credentials[0].decode("utf-8", "replace") if self.mechanism == "PLAIN" else ""

    @property
    def password(self) -> str:
        """PLAIN's; "" with CURVE."""
        return self.credentials[1].decode("utf-8", "replace") if self.mechanism == "PLAIN" else ""

    @property
    def key(self) -> str:
        """CURVE's: the peer's public key in Z85, of which it has the secret; "" with PLAIN."""
        return z85_encode(self.credentials[0]) if self.mechanism == "CURVE" else ""


@dataclass(frozen=True)
class Verdict:
    """What was decided: ZAP's status (200 come in, 300 not now, 400 no, 500 cannot tell), why not
    (for our events; the peer is told the number alone), and of who comes in the name and more that
    our side shall know: they become `Peer.user` and part of `Peer.metadata`."""

    status: int = 200
    text: str = ""
    user: str | None = None
    metadata: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise OptionError(f"a status is one of {STATUSES}, not {self.status!r}")


class Inquiry:
    """A judge that needs no thread of its own, because it never waits."""

    def begin(self, asking: Asking, tell: Callable[[Verdict], None]) -> None:
        """On the control thread; may not block. tell() once, now or later, from any thread; a
        peer that left meanwhile, or waited for longer than handshake_timeout, does not mind."""
        raise NotImplementedError


Answer: TypeAlias = "bool | str | Verdict"
Judge: TypeAlias = "Callable[[Asking], Answer] | Inquiry"


def judge(ask: Callable[[Asking], Answer], asking: Asking) -> Verdict:
    """Ask; whatever comes back as a Verdict, 500 if it is none. True: 200; a text: 200, and who it
    is; False or None: 400. Raises what the judge raises."""
    answer = ask(asking)
    if isinstance(answer, Verdict):
        return answer
    if answer is True:
        return Verdict()
    if isinstance(answer, str):
        return Verdict(user=answer)
    if answer is False or answer is None:
        return Verdict(400, "allow() said no")
    return Verdict(500, f"allow() returned {type(answer).__name__}; it must be True, False, a "
                        "name or a Verdict")


# -- the mechanisms --------------------------------------------------------------------------------


def _judges(allow: Any) -> bool:
    """It is asked, not looked into."""
    return callable(allow) or isinstance(allow, Inquiry)


class Security:
    """Base of the three. The same object may serve any number of sockets."""

    mechanism = ""
    server = False
    allow: Any = None
    domain = ""
    _native: Any = None  # the same for the wire, made when it is first needed

    @property
    def demands(self) -> bool:
        """Anything at all: more than that the peer speaks."""
        return self.mechanism != "NULL" or self.allow is not None

    def user_of(self, proof: bytes) -> str | None:
        """Who a peer is that has proven this much."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'server' if self.server else 'client'})"

    def __reduce__(self) -> Any:
        raise TypeError("secrets are not pickled; read them where they are used")


class _Users(Inquiry):
    """Those whose user id is in a table."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names

    def begin(self, asking: Asking, tell: Callable[[Verdict], None]) -> None:
        if asking.uid is None:
            tell(Verdict(400, "nobody vouches for its user: user ids in allow= are for ipc://"))
        elif asking.uid not in self.names:
            tell(Verdict(400, f"its user id {asking.uid} is not among those allowed"))
        else:
            tell(Verdict(user=self.names[asking.uid]))


class Null(Security):
    """No keys and no passwords. Null() says so over a default of the socket or the context.

    `allow` lets in who is known without them: the users of this machine, by ipc. It is a collection
    of user ids, or a mapping of them to names (`Peer.user`; else the id as text), which the kernel
    vouches for; or a callable (see `Curve`), whose Asking has `uid`, `gid` and `pid` of ipc peers.
    It may stand at either side; both may have one.
    """

    mechanism = "NULL"

    def __init__(self, *, allow: Collection[int] | Mapping[int, str] | Judge | None = None,
                 domain: str = "") -> None:
        self.domain = domain
        if allow is None or callable(allow) or isinstance(allow, Inquiry):
            self.allow = allow
            return
        names = allow if isinstance(allow, Mapping) else {uid: str(uid) for uid in allow}
        if any(isinstance(uid, bool) or not isinstance(uid, int) or uid < 0 for uid in names):
            raise OptionError("allow= of Null() is user ids, which are numbers",
                              hint="pwd.getpwnam(name).pw_uid is that of a name")
        self.allow = _Users(dict(names))

    def __repr__(self) -> str:
        return "Null(allow=...)" if self.demands else "Null()"


def _packed(rows: Iterable[tuple[str | Bytes, str | Bytes]]) -> Secret:
    """Usernames and passwords, the length of each in a byte before it."""
    packed = bytearray()
    for row in rows:
        for value, what in zip(row, ("username", "password"), strict=True):
            data = value.encode() if isinstance(value, str) else bytes(memoryview(value))
            if len(data) > 255:
                raise OptionError(f"a {what} has at most 255 bytes")
            packed += bytes([len(data)]) + data
    secret = Secret(packed)
    packed[:] = bytes(len(packed))
    return secret


class Plain(Security):
    """Username and password, which travel in the clear, as everything after them: over tls+tcp://,
    or ipc:// with a folder that only its users can enter.

    A client names its `username` and `password`. A server has `allow`: a mapping of usernames to
    passwords, or a callable (see `Curve`).
    """

    mechanism = "PLAIN"

    def __init__(self, username: str | Bytes | None = None, password: str | Bytes = "", *,
                 allow: Mapping[str, str | Bytes] | Judge | None = None, domain: str = "") -> None:
        if (username is None) == (allow is None):
            raise OptionError("Plain() wants a username and its password, or allow=",
                              hint="who has allow= judges the others, and is not judged")
        self.server = username is None
        self.allow = allow if _judges(allow) else None
        self.domain = domain
        if username is not None:
            self.logins = _packed([(username, password)])
        else:
            self.logins = _packed(allow.items() if isinstance(allow, Mapping) else ())

    def user_of(self, proof: bytes) -> str | None:
        return proof.decode("utf-8", "replace") if self.server else None


class Curve(Security):
    """Keys (RFC 25 and 26): nobody in between reads, changes or repeats anything, and each side
    knows who the other is. Keys are 40 characters of Z85 or 32 bytes.

    A client names the server's public key, `server_key`; its own `secret_key` is made for this
    object if left out, so that it is nobody in particular. A server has its `secret_key` and
    `allow`, which it must state: a collection of public keys lets those in; a mapping of them to
    names also says who is who (`Peer.user`); a callable is asked about each peer with an `Asking`;
    `mqcore.ANY` accepts every key, so that whoever has the server's public key comes in.

    A callable answers True, False, a name or a `Verdict`. It runs on a thread of its own and may
    wait as long as the handshake may take; if it raises, the peer is refused with 500. `domain` is
    passed on to it.
    """

    mechanism = "CURVE"

    def __init__(self, server_key: str | Bytes | None = None, *,
                 secret_key: str | Bytes | None = None,
                 allow: (Collection[str | bytes] | Mapping[str | bytes, str] | Judge | _Any
                         | None) = None, domain: str = "") -> None:
        need_sodium()
        if server_key is None and secret_key is None:
            raise OptionError("Curve() wants server_key (a client) or secret_key (a server)",
                              hint="make a pair with curve_keypair() or `mq keygen`")
        if server_key is None and allow is None:
            raise OptionError("Curve(secret_key=...) without server_key is a server, and must "
                              "state whose keys it accepts",
                              hint="allow={client's public key, ...}; allow=mqcore.ANY accepts "
                                   "every key")
        if server_key is not None and allow is not None:
            raise OptionError("a client does not judge the server: allow= is for servers",
                              hint="server_key says which server it is")
        self.server = server_key is None
        self.server_key = b"" if server_key is None else key_bytes(server_key, "server_key")
        own = keypair()[1] if secret_key is None else bytearray(
            key_bytes(secret_key, "secret_key"))
        self.secret = Secret(own)
        own[:] = bytes(KEY)
        self.allow = allow if _judges(allow) else None
        self.domain = domain
        self.keys: frozenset[bytes] | None = None
        self._names: dict[bytes, str] = {}
        if isinstance(allow, (str, bytes)):
            raise OptionError("allow= is a collection of keys", hint="put the one key into {...}")
        if not (allow is None or isinstance(allow, (_Any, Inquiry)) or callable(allow)):
            self.keys = frozenset(key_bytes(key, "a key in allow") for key in allow)
            if isinstance(allow, Mapping):
                self._names = {key_bytes(key): name for key, name in allow.items()}

    @property
    def public_key(self) -> str:
        """Ours, in Z85: what the others need."""
        return z85_encode(public_of(self.secret))

    def user_of(self, proof: bytes) -> str | None:
        return self._names.get(proof) or (z85_encode(proof) if len(proof) == KEY else None)
