"""Listener and Dialer: what listen() and dial() made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqcore.control.endpoint import Endpoint
from mqcore.nng import options
from mqcore.nng.address import shown
from mqcore.nng.exceptions import NotSupported, make
from mqcore.nng.options import Option
from mqcore.nng.pipes import tls_option
from mqcore.nng.sockaddr import SockAddr, sockaddr_of
from mqcore.nng.tls import TLSConfig

if TYPE_CHECKING:
    from mqcore.nng.socket import Socket


class _Way:
    """What both have in common. `_own`: options that were assigned here, which hold for what is
    connected from then on where mqcore can still change them."""

    def __init__(self, endpoint: Endpoint, socket: Socket, address: str, number: int) -> None:
        self._endpoint = endpoint
        self._socket = socket
        self._address = address
        self._number = number
        self._own: dict[str, Any] = {}

    @property
    def id(self) -> int:
        return self._number

    def close(self) -> None:
        """End it, and the connections that came of it. Idempotent."""
        self._endpoint.close()
        self._socket._drop(self)

    def _get(self, name: str) -> Any:
        return self._own.get(name, getattr(self._socket, name))

    def _keep(self, name: str, value: Any, check: Any) -> None:
        check(value)
        self._own[name] = value

    def _pauses(self, name: str, value: Any) -> None:
        self._keep(name, value, options.whole)
        backoff = getattr(self._socket._core._links.nodes.get(self._endpoint), "_backoff", None)
        if backoff is not None:
            backoff.initial = options.pause(self.reconnect_time_min)
            backoff.maximum = max(backoff.initial, options.pause(self.reconnect_time_max))
            backoff.reset()

    def _secret(self, value: Any) -> None:
        if not isinstance(value, TLSConfig):
            raise ValueError(f"tls_config is a TLSConfig, not {type(value).__name__}")
        raise make(NotSupported, "this one is under way already; give tls_config to the socket")

    def _local(self) -> SockAddr:
        return sockaddr_of(self._endpoint.url)

    def _remote(self) -> SockAddr:
        if self._endpoint.url.partition("://")[0] in ("inproc", "ipc"):
            return sockaddr_of(self._endpoint.url)
        raise make(NotSupported, "the address of the other end is its pipe's")

    url = Option("The address, with the real port.",
                 lambda self: shown(self._address, self._endpoint.url))
    local_address = Option("Where it listens; of a dialer only ipc and inproc are known.", _local)
    remote_address = Option("ipc and inproc have one; others' is the pipe's.", _remote)
    peer = Option("nng's number of the pattern that it talks to.",
                  lambda self: self._socket.peer, refused=NotSupported)
    peer_name = Option("Its name.", lambda self: self._socket.peer_name, refused=NotSupported)
    reconnect_time_min = Option(
        "ms.", lambda self: self._get("reconnect_time_min"),
        lambda self, value: self._pauses("reconnect_time_min", value))
    reconnect_time_max = Option(
        "ms.", lambda self: self._get("reconnect_time_max"),
        lambda self, value: self._pauses("reconnect_time_max", value))
    recv_max_size = Option(
        "Bytes.", lambda self: self._get("recv_max_size"),
        lambda self, value: self._limit(value))
    tcp_nodelay = Option(
        "Always on.", lambda self: self._get("tcp_nodelay"),
        lambda self, value: self._keep("tcp_nodelay", value, bool))
    tcp_keepalive = Option(
        "Keep-alive probes.", lambda self: self._get("tcp_keepalive"),
        lambda self, value: self._alive(value))
    tls_config = Option("Write-only.", lambda self: _unreadable(), _secret)
    tls_auth_mode = tls_option("tls_auth_mode")
    tls_ca_file = tls_option("tls_ca_file")
    tls_cert_key_file = tls_option("tls_cert_key_file")
    tls_server_name = tls_option("tls_server_name")

    def _limit(self, value: Any) -> None:
        self._keep("recv_max_size", value, options.size)
        self._change("max_message_size", options.size(value))

    def _alive(self, value: Any) -> None:
        self._keep("tcp_keepalive", value, bool)
        self._change("keepalive", bool(value))

    def _change(self, name: str, value: Any) -> None:
        """An option of mqcore's, for connections from now on."""
        node = self._socket._core._links.nodes.get(self._endpoint)
        if node is not None:
            node.options[name] = value


class Listener(_Way):
    """An address that the socket listens at."""

    @property
    def listener(self) -> Endpoint:
        """mqcore's Endpoint."""
        return self._endpoint


class Dialer(_Way):
    """An address that the socket keeps a connection to."""

    @property
    def dialer(self) -> Endpoint:
        """mqcore's Endpoint."""
        return self._endpoint

    def _local(self) -> SockAddr:
        if self._endpoint.url.partition("://")[0] in ("inproc", "ipc"):
            return sockaddr_of(self._endpoint.url)
        return SockAddr()

    local_address = Option("Known for ipc and inproc alone; the pipe knows more.", _local)


def _unreadable() -> Any:
    raise TypeError("tls_config can only be set")
