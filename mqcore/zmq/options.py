"""Every socket option of libzmq: what it is here.

A row says of what kind its value is, the default, which values are possible and what they are as
mqcore's options. Rows without counterpart are of two sorts. A *hint* changes how fast or on which
thread something happens: its value is kept and does nothing. What a program would rely on, and is
not here, is *absent*: setting it is ENOTSUP, and says what to do instead. README.md lists both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mqcore.zmq import mechanism
from mqcore.zmq.constants import Errno, SocketOption, SocketType
from mqcore.zmq.error import ZMQError, make

if TYPE_CHECKING:
    from mqcore.zmq.shared import Shared

INT_MAX = 2**31 - 1
FOR_EVER = -1
#: mqcore's options of every socket, where libzmq's default is another one
DEFAULTS: dict[str, Any] = {
    "send_hwm": 1000, "recv_hwm": 1000, "send_hwm_bytes": None, "recv_hwm_bytes": None,
    "linger": None, "max_message_size": None, "max_unfinished": None,
    "heartbeat": None, "heartbeat_timeout": None,
    "handshake_timeout": 30.0, "connect_timeout": None, "reconnect": 0.1, "reconnect_max": 0.1,
    "backlog": 100, "wire": "zmtp", "keepalive": False, "keepalive_idle": None,
    "keepalive_interval": None, "keepalive_count": None,
}
#: and of some patterns
PATTERN_DEFAULTS: dict[str, dict[str, Any]] = {
    "req": {"strict": True}, "router": {"mandatory": False, "handover": False},
    # libzmq reads 8 KiB at a time, and its HWMs count these
    "stream": {"wire": None, "notify": True, "recv_hwm_bytes": 1000 * 8192},
}
NO_GSSAPI = "there is no GSSAPI; CURVE seals and proves who is who"


class Row(NamedTuple):
    """One option. `apply` None and no `why`: it cannot be set. `types` empty: of all sockets."""

    kind: type
    default: Any  # None: it cannot be read
    apply: Callable[[Shared, Any], None] | None = None
    check: Callable[[Any], bool] | None = None
    types: tuple[SocketType, ...] = ()
    why: str = ""  # of one that is absent
    hint: bool = False


# -- what values become ----------------------------------------------------------------------------


def seconds(value: int) -> float | None:
    """Milliseconds; negative: for ever."""
    return None if value < 0 else value / 1000


def or_none(value: int) -> int | None:
    """0, or less: no limit."""
    return value if value > 0 else None


def time_or_none(value: int) -> float | None:
    return value / 1000 if value > 0 else None


def reconnect(shared: Shared, value: int) -> None:
    """libzmq's pause doubles only if there is a RECONNECT_IVL_MAX."""
    first = shared.values.get(SocketOption.RECONNECT_IVL, 100)
    most = shared.values.get(SocketOption.RECONNECT_IVL_MAX, 0)
    shared.put("reconnect", None if first < 0 else max(first, 1) / 1000)
    shared.put("reconnect_max", max(first, most, 1) / 1000)


def heartbeat(shared: Shared, value: int) -> None:
    """A HEARTBEAT_TIMEOUT of -1 is the interval."""
    every = shared.values.get(SocketOption.HEARTBEAT_IVL, 0)
    limit = shared.values.get(SocketOption.HEARTBEAT_TIMEOUT, -1)
    shared.put("heartbeat", time_or_none(every))
    shared.put("heartbeat_timeout", time_or_none(every if limit < 0 else limit))


def stops(shared: Shared, value: int) -> None:
    if value & ~3:
        raise make(Errno.ENOTSUP, "connections are made again after a disconnect")
    words = [word for bit, word in ((1, "refused"), (2, "handshake")) if value & bit]
    shared.put("reconnect_stop", tuple(words))


def both_marks(shared: Shared, value: int) -> None:
    for option in (SocketOption.SNDHWM, SocketOption.RCVHWM):
        write(shared, option, value)


# -- rows ------------------------------------------------------------------------------------------


def nothing(shared: Shared, value: Any) -> None:
    """Its value is kept for those who look."""


def is_flag(value: int) -> bool:
    return value in (0, 1)


def short(value: bytes) -> bool:
    return 1 <= len(value) <= 255


def mapped(name: str, default: Any, convert: Callable[[Any], Any] = lambda value: value,
           check: Callable[[Any], bool] | None = None, kind: type = int) -> Row:
    return Row(kind, default, lambda shared, value: shared.put(name, convert(value)), check)


def flag(name: str, *types: SocketType, default: int | None = None,
         convert: Callable[[int], Any] = bool) -> Row:
    """0 or 1; of these sockets alone, then libzmq does not tell it."""
    return Row(int, default, lambda shared, value: shared.put(name, convert(value)), is_flag,
               types)


def hint(default: Any, kind: type = int) -> Row:
    return Row(kind, default, nothing, hint=True)


def absent(why: str, default: Any = 0, kind: type = int) -> Row:
    return Row(kind, default, why=why)


def probing(most: int) -> Callable[[Any], bool]:
    """Times and counts of keep-alive probes: -1 is the system's own."""
    return lambda value: value == -1 or 1 <= value <= most


def at_least(low: int) -> Callable[[Any], bool]:
    return lambda value: low <= value <= INT_MAX


def topic(on: bool) -> Row:
    return Row(bytes, None, lambda shared, value: shared.want(value, on),
               types=(SocketType.SUB, SocketType.XPUB))



O, T = SocketOption, SocketType
PUBLISHERS = (T.XPUB, T.PUB)
ROWS: dict[int, Row] = {
    # queues and time
    O.HWM: Row(int, 1000, both_marks, at_least(0)),
    O.SNDHWM: mapped("send_hwm", 1000, or_none, at_least(0)),
    O.RCVHWM: mapped("recv_hwm", 1000, or_none, at_least(0)),
    O.SNDTIMEO: mapped("send_timeout", FOR_EVER, seconds, at_least(-1)),
    O.RCVTIMEO: mapped("recv_timeout", FOR_EVER, seconds, at_least(-1)),
    O.LINGER: mapped("linger", FOR_EVER, seconds, at_least(-1)),
    O.CONFLATE: flag("conflate", default=0),
    O.IMMEDIATE: flag("immediate", default=0),
    O.MAXMSGSIZE: mapped("max_message_size", -1, lambda value: None if value < 0 else value,
                         lambda value: value >= -1),
    # connections
    O.RECONNECT_IVL: Row(int, 100, reconnect, at_least(-1)),
    O.RECONNECT_IVL_MAX: Row(int, 0, reconnect, at_least(0)),
    O.RECONNECT_STOP: Row(int, 0, stops, lambda value: 0 <= value <= 7),
    O.HEARTBEAT_IVL: Row(int, 0, heartbeat, at_least(0)),
    O.HEARTBEAT_TIMEOUT: Row(int, -1, heartbeat, at_least(0)),
    O.HEARTBEAT_TTL: mapped("heartbeat_ttl", 0, lambda value: value // 100 / 10,
                            lambda value: 0 <= value < 6553600),
    O.HANDSHAKE_IVL: mapped("handshake_timeout", 30000, time_or_none, at_least(0)),
    O.CONNECT_TIMEOUT: mapped("connect_timeout", 0, time_or_none, at_least(0)),
    O.BACKLOG: mapped("backlog", 100, lambda value: max(value, 1), at_least(0)),
    O.SNDBUF: mapped("send_buffer", -1, or_none, at_least(-1)),
    O.RCVBUF: mapped("recv_buffer", -1, or_none, at_least(-1)),
    O.TOS: mapped("tos", 0, check=lambda value: 0 <= value <= 255),
    O.TCP_KEEPALIVE: mapped("keepalive", -1, lambda value: value == 1,
                            lambda value: value in (-1, 0, 1)),
    O.TCP_KEEPALIVE_IDLE: mapped("keepalive_idle", -1, or_none, probing(32767)),
    O.TCP_KEEPALIVE_INTVL: mapped("keepalive_interval", -1, or_none, probing(32767)),
    O.TCP_KEEPALIVE_CNT: mapped("keepalive_count", -1, or_none, probing(127)),
    O.BINDTODEVICE: mapped("bind_device", b"", lambda value: value.decode() or None, kind=bytes),
    # patterns
    O.ROUTING_ID: mapped("routing_id", b"", kind=bytes,
                         check=lambda value: 1 <= len(value) <= 255 and value[:1] != b"\0"),
    O.SUBSCRIBE: topic(True),
    O.UNSUBSCRIBE: topic(False),
    O.ROUTER_MANDATORY: flag("mandatory", T.ROUTER),
    O.ROUTER_HANDOVER: flag("handover", T.ROUTER),
    O.ROUTER_RAW: Row(int, None, lambda shared, value: shared.be_raw(bool(value)),
                      lambda value: value in (0, 1), (T.ROUTER,)),
    O.STREAM_NOTIFY: flag("notify", T.STREAM),
    O.CONNECT_ROUTING_ID: Row(bytes, None, lambda shared, value: shared.name_next(value),
                              lambda value: 1 <= len(value) <= 255, (T.ROUTER, T.STREAM)),
    O.PROBE_ROUTER: flag("probe", T.ROUTER, T.DEALER, T.REQ),
    O.REQ_CORRELATE: flag("correlate", T.REQ, convert=lambda value: True if value else None),
    O.REQ_RELAXED: flag("strict", T.REQ, convert=lambda value: not value),
    O.XPUB_VERBOSE: flag("verbose", T.XPUB),
    O.XPUB_VERBOSER: flag("verboser", T.XPUB),
    O.XPUB_MANUAL: flag("manual", T.XPUB),
    O.XPUB_NODROP: flag("nodrop", *PUBLISHERS),
    O.XPUB_WELCOME_MSG: Row(bytes, None, lambda shared, value: shared.put("welcome", value or None),
                            types=(T.XPUB,)),
    # security
    O.PLAIN_SERVER: Row(int, 0, mechanism.serve(mechanism.PLAIN), is_flag),
    O.PLAIN_USERNAME: Row(bytes, b"", mechanism.login, short),
    O.PLAIN_PASSWORD: Row(bytes, b"", mechanism.login, short),
    O.CURVE_SERVER: Row(int, 0, mechanism.serve(mechanism.CURVE), is_flag),
    **{option: Row(bytes, None, mechanism.key(option)) for option in mechanism.KEYS},
    O.ZAP_DOMAIN: Row(bytes, b"", nothing, short),
    O.ZAP_ENFORCE_DOMAIN: Row(int, 0, mechanism.enforce),
    **{option: Row(int, None, mechanism.admit(option)) for option in mechanism.FILTERS},
    # addresses
    O.IPV6: Row(int, 0, lambda shared, value: shared.keep(O.IPV4ONLY, 1 - value), is_flag),
    O.IPV4ONLY: Row(int, 1, lambda shared, value: shared.keep(O.IPV6, 1 - value), is_flag),
    # what is so
    O.RCVMORE: Row(int, 0), O.FD: Row(int, -1), O.EVENTS: Row(int, 0), O.TYPE: Row(int, 0),
    O.LAST_ENDPOINT: Row(bytes, b""), O.MECHANISM: Row(int, 0), O.THREAD_SAFE: Row(int, 0),
    O.TOPICS_COUNT: Row(int, 0, types=(T.SUB, T.XSUB, T.PUB, T.XPUB)),
    # hints
    O.AFFINITY: hint(0), O.RATE: hint(100), O.RECOVERY_IVL: hint(10000),
    O.MULTICAST_HOPS: hint(1), O.MULTICAST_LOOP: hint(1),
    O.MULTICAST_MAXTPDU: hint(1500), O.TCP_MAXRT: hint(0), O.LOOPBACK_FASTPATH: hint(0),
    O.PRIORITY: hint(0), O.BUSY_POLL: hint(0), O.IN_BATCH_SIZE: hint(8192),
    O.OUT_BATCH_SIZE: hint(8192), O.VMCI_BUFFER_SIZE: hint(65536),
    O.VMCI_BUFFER_MIN_SIZE: hint(128), O.VMCI_BUFFER_MAX_SIZE: hint(262144),
    O.VMCI_CONNECT_TIMEOUT: hint(-1),
    # absent
    O.GSSAPI_SERVER: absent(NO_GSSAPI), O.GSSAPI_PLAINTEXT: absent(NO_GSSAPI),
    O.GSSAPI_PRINCIPAL: absent(NO_GSSAPI, b"", bytes),
    O.GSSAPI_SERVICE_PRINCIPAL: absent(NO_GSSAPI, b"", bytes),
    O.GSSAPI_PRINCIPAL_NAMETYPE: absent(NO_GSSAPI),
    O.GSSAPI_SERVICE_PRINCIPAL_NAMETYPE: absent(NO_GSSAPI),
    O.WSS_KEY_PEM: absent("wss:// is mqcore's own: its tls_* options belong to the address",
                          b"", bytes),
    O.SOCKS_PROXY: absent("there is no proxy; connect through a forwarded port", b"", bytes),
    O.USE_FD: absent("use mqcore's fd:// transport", -1),
    O.ROUTER_NOTIFY: absent("a monitor tells of peers"),
    O.INVERT_MATCHING: absent("subscribe to what is wanted"),
    O.METADATA: absent("mqcore's `metadata` option is set with mqcore.socket()", b"", bytes),
    O.XPUB_MANUAL_LAST_VALUE: absent("XPUB_MANUAL without the last value"),
    O.ONLY_FIRST_SUBSCRIBE: absent("each message of a subscriber is looked at"),
    O.XSUB_VERBOSE_UNSUBSCRIBE: absent("an XSUB passes on what changes"),
    O.HELLO_MSG: absent("send it when the monitor tells of a peer", b"", bytes),
    O.DISCONNECT_MSG: absent("the monitor tells of peers that left", b"", bytes),
    O.HICCUP_MSG: absent("the monitor tells of peers that left", b"", bytes),
    O.TCP_ACCEPT_FILTER: absent("bind to an inner address, or use a firewall", None, bytes),
    O.NORM_MODE: absent("there is no NORM transport"),
}
for _name, _kind in (("WSS_CERT_PEM", bytes), ("WSS_TRUST_PEM", bytes), ("WSS_HOSTNAME", bytes),
                     ("WSS_TRUST_SYSTEM", int)):
    ROWS[O[_name]] = absent(ROWS[O.WSS_KEY_PEM].why, _kind(), _kind)
for _name in ("SOCKS_USERNAME", "SOCKS_PASSWORD"):
    ROWS[O[_name]] = ROWS[O.SOCKS_PROXY]
for _name in O.__members__:
    if _name.startswith("NORM_"):
        ROWS[O[_name]] = ROWS[O.NORM_MODE]


# -- reading and writing ---------------------------------------------------------------------------


def row_of(shared: Shared, option: int) -> Row:
    row = ROWS.get(option)
    if row is None or (row.types and shared.type not in row.types):
        raise ZMQError(Errno.EINVAL)
    return row


def write(shared: Shared, option: int, value: Any) -> None:
    """Set one. EINVAL for what libzmq refuses, ENOTSUP for what is absent."""
    if option not in ROWS and not isinstance(value, int):
        raise TypeError(f"expected int, got: {value!r}")
    row = row_of(shared, option)
    value = _typed(row, value)
    if row.why:
        if value == row.default:
            return
        raise make(Errno.ENOTSUP, f"{O(option).name}: {row.why}")
    if row.apply is None or (row.check is not None and not row.check(value)):
        raise ZMQError(Errno.EINVAL)
    before = shared.values.get(option)
    shared.values[option] = value
    try:
        row.apply(shared, value)
    except BaseException:
        if before is None:
            shared.values.pop(option, None)
        else:
            shared.values[option] = before
        raise


def read(shared: Shared, option: int) -> Any:
    """The value that was set, or libzmq's default. EINVAL for what cannot be read."""
    row = row_of(shared, option)
    found = shared.values.get(option, row.default)
    if found is None or (row.default is None and option not in mechanism.KEYS):
        raise ZMQError(Errno.EINVAL)
    return found


def _typed(row: Row, value: Any) -> Any:
    if isinstance(value, str):
        raise TypeError("unicode not allowed, use setsockopt_string")
    if row.kind is int:
        if not isinstance(value, int):
            raise TypeError(f"expected int, got: {value!r}")
        return int(value)
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"expected bytes, got: {value!r}")
    return bytes(value)
