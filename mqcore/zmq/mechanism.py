"""Which mechanism a socket's options add up to, as libzmq has it: the option that was set last says
whether it is PLAIN or CURVE, and whether the socket is the server. It counts for the addresses that
are bound and connected afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mqcore as mq
from mqcore.security import key_bytes, need_sodium, z85_encode
from mqcore.zmq.constants import Errno, SecurityMechanism, SocketOption
from mqcore.zmq.error import ZMQError, make, translated
from mqcore.zmq.zap import Gate

if TYPE_CHECKING:
    from mqcore.zmq.shared import Shared

O = SocketOption  # noqa: E741
NULL, PLAIN, CURVE = (int(SecurityMechanism[name]) for name in ("NULL", "PLAIN", "CURVE"))
SERVERS = {PLAIN: O.PLAIN_SERVER, CURVE: O.CURVE_SERVER}
KEYS = (O.CURVE_PUBLICKEY, O.CURVE_SECRETKEY, O.CURVE_SERVERKEY)
FILTERS = (O.IPC_FILTER_UID, O.IPC_FILTER_GID, O.IPC_FILTER_PID)


# -- what options do -------------------------------------------------------------------------------


def agree(shared: Shared, mechanism: int, server: bool) -> None:
    shared.values[O.MECHANISM] = mechanism
    for one, option in SERVERS.items():
        shared.values[option] = int(server and one == mechanism)


def serve(mechanism: int) -> Any:
    """PLAIN_SERVER, CURVE_SERVER: 0 takes any mechanism back."""
    def apply(shared: Shared, value: int) -> None:
        if mechanism == CURVE:
            _need_sodium()
        agree(shared, mechanism if value else NULL, bool(value))
    return apply


def enforce(shared: Shared, value: int) -> None:
    shared.values[O.ZAP_ENFORCE_DOMAIN] = int(bool(value))


def login(shared: Shared, value: bytes) -> None:
    """PLAIN_USERNAME, PLAIN_PASSWORD."""
    agree(shared, PLAIN, False)


def key(option: SocketOption) -> Any:
    """A key of CURVE; kept as Z85, which is what get() gives."""
    def apply(shared: Shared, value: bytes) -> None:
        _need_sodium()
        try:
            raw = key_bytes(value[:-1] if len(value) == 41 and not value[-1] else value)
        except mq.OptionError as error:
            raise make(Errno.EINVAL, error.text) from None
        shared.values[option] = z85_encode(raw).encode()
        server = any(shared.values.get(one) for one in SERVERS.values())
        agree(shared, CURVE, server and option != O.CURVE_SERVERKEY)
    return apply


def admit(option: SocketOption) -> Any:
    """IPC_FILTER_UID, _GID, _PID: one more that may come."""
    def apply(shared: Shared, value: int) -> None:
        place = FILTERS.index(option)
        shared.filters = (*shared.filters[:place], shared.filters[place] | {value},
                          *shared.filters[place + 1:])
    return apply


def _need_sodium() -> None:
    try:
        need_sodium()
    except mq.Error as error:
        raise translated(error) from error


# -- what they are as mqcore's security= -----------------------------------------------------------


class _Named:
    """Only a ZAP handler determines a peer's User-Id."""

    def user_of(self, proof: bytes) -> str | None:
        return None


class ZapPlain(_Named, mq.security.Plain):
    pass


class ZapCurve(_Named, mq.security.Curve):
    pass


def demands(shared: Shared, kind: str, address: str) -> dict[str, Any]:
    """The arguments about security of mqcore's bind() or connect(). OptionError if keys miss."""
    values = shared.values
    mechanism = values.get(O.MECHANISM, NULL)
    scheme = address.partition("://")[0]
    domain: bytes = values.get(O.ZAP_DOMAIN, b"")
    filters = shared.filters if kind == "bind" and scheme == "ipc" and any(shared.filters) else ()
    if scheme == "inproc" or (mechanism == NULL and not domain and not filters):
        return {}
    server = bool(values.get(SERVERS.get(mechanism, 0)))
    gate = Gate(shared.home, domain, bool(values.get(O.ZAP_ENFORCE_DOMAIN)), filters)
    if mechanism == NULL:
        return {"security": mq.security.Null(allow=gate)}
    if mechanism == PLAIN:
        return {"security": ZapPlain(allow=gate) if server else ZapPlain(
            values.get(O.PLAIN_USERNAME, b""), values.get(O.PLAIN_PASSWORD, b""))}
    return {"security": _curve(values, server, gate)}


def _curve(values: dict[int, Any], server: bool, gate: Gate) -> mq.security.Curve:
    public, secret, theirs = (values.get(option) for option in KEYS)
    if secret is None or not (server or theirs):
        raise mq.OptionError(
            "CURVE wants CURVE_SECRETKEY, and CURVE_SERVER or CURVE_SERVERKEY")
    made = ZapCurve(secret_key=secret, allow=gate) if server else ZapCurve(
        theirs, secret_key=secret)
    if public is not None and not server and made.public_key != public.decode():
        raise mq.OptionError("CURVE_PUBLICKEY does not belong to CURVE_SECRETKEY")
    return made


# -- functions -------------------------------------------------------------------------------------


def curve_keypair() -> tuple[bytes, bytes]:
    """A new key pair in Z85: public, secret. ENOTSUP without libsodium."""
    _need_sodium()
    pair = mq.security.curve_keypair()
    return pair.public.encode(), pair.secret.encode()


def curve_public(secret_key: str | bytes) -> bytes:
    """The public key of a secret one, both in Z85. ENOTSUP without libsodium."""
    _need_sodium()
    text = secret_key.encode() if isinstance(secret_key, str) else secret_key
    if len(text) != 40:
        raise ValueError("secret key must be a 40 byte z85 encoded string")
    try:
        return mq.security.curve_public(text).encode()
    except mq.OptionError as error:
        raise ValueError(error.text) from None


def has_curve() -> bool:
    try:
        _need_sodium()
    except ZMQError:
        return False
    return True
