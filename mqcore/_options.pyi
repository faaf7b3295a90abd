"""Types of the options: as keyword arguments, and as attributes of a socket."""

import ssl
from collections.abc import Collection, Mapping
from typing import Literal, TypedDict

from mqcore.security import Security

class TlsOptions(TypedDict, total=False):
    tls_cert: str | None
    tls_key: str | None
    tls_key_password: str | None
    tls_ca: str | None
    tls_verify: Literal["full", "ca", "none"]
    tls_hostname: str | None
    tls_mutual: bool | None
    tls_min_version: Literal["1.2", "1.3"]
    tls_context: ssl.SSLContext | None

class EndpointOptions(TlsOptions, total=False):
    max_message_size: int | None
    connect_timeout: float | None
    handshake_timeout: float | None
    reconnect: float | None
    reconnect_max: float
    reconnect_stop: Collection[Literal["refused", "handshake"]]
    heartbeat: float | None
    heartbeat_timeout: float | None
    heartbeat_ttl: float
    backlog: int
    max_handshakes: int | None
    prio: int
    wire: Literal["zmtp", "sp"] | None
    send_buffer: int | None
    recv_buffer: int | None
    keepalive: bool
    keepalive_idle: int | None
    keepalive_interval: int | None
    keepalive_count: int | None
    idle_after: float | None
    bind_device: str | None
    tos: int
    security: Security | None

class NamedEndpointOptions(EndpointOptions, total=False):
    peer_id: bytes

class Options(EndpointOptions, total=False):
    send_timeout: float | None
    recv_timeout: float | None
    linger: float | None
    send_hwm: int | None
    recv_hwm: int | None
    send_hwm_bytes: int | None
    recv_hwm_bytes: int | None
    on_full: Literal["pattern", "block", "drop_new", "disconnect"]
    conflate: bool
    immediate: bool
    routing_id: bytes
    metadata: Mapping[str, bytes | str]
    max_hops: int

class SocketAttributes:
    send_timeout: float | None
    recv_timeout: float | None
    linger: float | None
    send_hwm: int | None
    recv_hwm: int | None
    send_hwm_bytes: int | None
    recv_hwm_bytes: int | None
    on_full: Literal["pattern", "block", "drop_new", "disconnect"]
    conflate: bool
    immediate: bool
    max_message_size: int | None
    connect_timeout: float | None
    handshake_timeout: float | None
    reconnect: float | None
    reconnect_max: float
    reconnect_stop: Collection[Literal["refused", "handshake"]]
    heartbeat: float | None
    heartbeat_timeout: float | None
    heartbeat_ttl: float
    backlog: int
    max_handshakes: int | None
    prio: int
    wire: Literal["zmtp", "sp"] | None
    send_buffer: int | None
    recv_buffer: int | None
    keepalive: bool
    keepalive_idle: int | None
    keepalive_interval: int | None
    keepalive_count: int | None
    idle_after: float | None
    bind_device: str | None
    tos: int
    routing_id: bytes
    metadata: Mapping[str, bytes | str]
    security: Security | None
    max_hops: int
    # of transports, filters and resolvers
    ring: int
    peer_uid: int | None
    spin: int
    multicast_hops: int
    multicast_loop: bool
    tls_cert: str | None
    tls_key: str | None
    tls_key_password: str | None
    tls_ca: str | None
    tls_verify: Literal["full", "ca", "none"]
    tls_hostname: str | None
    tls_mutual: bool | None
    tls_min_version: Literal["1.2", "1.3"]
    tls_context: ssl.SSLContext | None
    origin: str | None
    subprotocol: str | None
    refresh: float
    family: int
