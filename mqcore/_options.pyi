# Written by tools/stubs.py. Do not edit.
"""Types of the options: as keyword arguments, and as attributes of a socket."""

import ssl
from collections.abc import Collection, Mapping
from typing import Literal, TypedDict

from mqcore.security import Security

class EndpointOptions(TypedDict, total=False):
    """What bind() and connect() take, and sockets too."""
    max_message_size: int | None
    """max_message_size: size in B, default 1073741824: a larger message from a peer ends its
    connection; None: no limit.
    """
    connect_timeout: float | None
    """connect_timeout: seconds, default 10.0: time limit of one attempt to connect to one
    address; None: the system's own.
    """
    handshake_timeout: float | None
    """handshake_timeout: seconds, default 10.0: time limit from the connection to the end of
    the handshake; None: for ever.
    """
    reconnect: float | None
    """reconnect: seconds, default 0.1: pause before the first reconnect; doubles each time,
    less a random part of up to half; None: never.
    """
    reconnect_max: float
    """reconnect_max: seconds, default 10.0: longest pause between attempts."""
    reconnect_stop: Collection[Literal["refused", "handshake"]]
    """reconnect_stop: choices, default (): errors after which the socket stops trying:
    connection refused, handshake failed.
    """
    heartbeat: float | None
    """heartbeat: seconds, default 15.0: interval of pings to the peer; None: off."""
    heartbeat_timeout: float | None
    """heartbeat_timeout: seconds, default 30.0: disconnect a peer from which nothing arrives
    for this long after a ping; time in which a full queue keeps the socket from reading does
    not count; None: for ever.
    """
    heartbeat_ttl: float
    """heartbeat_ttl: seconds, default 0.0: asks the peer to disconnect us after this much
    silence; 0 does not ask.
    """
    backlog: int
    """backlog: int in connections, default 1024: connections that may wait to be accepted."""
    max_handshakes: int | None
    """max_handshakes: int in connections, default 1024: connections per listener that may be in
    their handshake. One more disconnects the oldest of them; None: no limit.
    """
    prio: int
    """prio: int, default 8: messages go to the best level that has a peer with space; 1 is
    best.
    """
    wire: Literal["zmtp", "sp"] | None
    """wire: choice, default None: which protocol a connecting socket speaks; None: the
    pattern's natural one.
    """
    upgrade: bool
    """upgrade: bool, default False: tcp and ipc: use shared memory with a peer of the same user
    on this machine that has this option, too.
    """
    send_buffer: int | None
    """send_buffer: size in B, default None: the kernel's send buffer; None: the system's own."""
    recv_buffer: int | None
    """recv_buffer: size in B, default None: the kernel's receive buffer; None: the system's
    own.
    """
    keepalive: bool
    """keepalive: bool, default True: TCP keep-alive: the kernel probes an idle peer and ends
    the connection if it is dead.
    """
    keepalive_idle: int | None
    """keepalive_idle: int in s, default 60: TCP keep-alive: idle time before the first probe;
    None: the system's own.
    """
    keepalive_interval: int | None
    """keepalive_interval: int in s, default 10: TCP keep-alive: time between probes; None: the
    system's own.
    """
    keepalive_count: int | None
    """keepalive_count: int in probes, default 6: TCP keep-alive: unanswered probes before the
    connection ends; None: the system's own.
    """
    idle_after: float | None
    """idle_after: seconds, default 60.0: sockets that receive: time without a message from a
    peer after which events() reports Idle, once per pause; None: never.
    """
    bind_device: str | None
    """bind_device: text, default None: tcp and udp: the network device that all packets must
    use (SO_BINDTODEVICE); None: any.
    """
    tos: int
    """tos: int, default 0: IP type-of-service byte of outgoing packets."""
    congestion_control: str | None
    """congestion_control: text, default None: TCP's congestion control, by the kernel's name
    (TCP_CONGESTION); None: the system's own, but 'reno' instead of BBR within one machine.
    """
    security: Security | None
    """security: security, default None: ZMTP over streams: authentication and encryption by
    Null(), Plain() or Curve(); None: NULL: any peer may come, and everything is readable.
    """
    ring: int
    """ring: size, default 262144: shm: size of each of the two rings, a power of two; the
    connecting side sets it.
    """
    peer_uid: int | None
    """peer_uid: int, default None: shm: the user that the peer must run as; None: the same
    user, -1: any user who may open the socket.
    """
    spin: float
    """spin: seconds, default 2.5e-05: shm: how long a receive polls for a message before it
    sleeps, while that pays off; 0: never.
    """
    multicast_hops: int
    """multicast_hops: int, default 1: routers that a multicast datagram may pass, plus 1; 0: it
    stays on this machine.
    """
    multicast_loop: bool
    """multicast_loop: bool, default True: this machine also receives its own multicast."""
    tls_cert: str | None
    """tls_cert: text, default None: the certificate to show, a PEM file that also has the CA
    certificates between it and the root; None: no certificate, for connecting sockets only.
    """
    tls_key: str | None
    """tls_key: text, default None: its private key, a PEM file that other users cannot read;
    None: in the file of tls_cert.
    """
    tls_key_password: str | None
    """tls_key_password: secret, default None: the password of an encrypted key; never in a URL;
    None: not set.
    """
    tls_ca: str | None
    """tls_ca: text, default None: trusted CAs: a PEM file of certificates, or a folder of such
    files; None: the system's.
    """
    tls_verify: Literal["full", "ca", "none"]
    """tls_verify: choice, default 'full': how a connecting socket verifies a server:
    certificate and host name, certificate only, or not at all.
    """
    tls_hostname: str | None
    """tls_hostname: text, default None: the name that the server must have, also sent as SNI;
    None: the URL's host.
    """
    tls_mutual: bool | None
    """tls_mutual: bool, default None: a listening socket only accepts clients with a
    certificate of tls_ca; None: yes if tls_ca is given.
    """
    tls_min_version: Literal["1.2", "1.3"]
    """tls_min_version: choice, default '1.2': the oldest TLS version to accept."""
    tls_context: ssl.SSLContext | None
    """tls_context: object, default None: your own context instead of these options (except
    beside it); never in a URL; None: not set.
    """
    origin: str | None
    """origin: text, default None: ws: which pages may connect: origins like
    https://example.org, separated by spaces, or * for all; unset: pages of the listener's
    own host and port, on loopback only under loopback names. Connecting: the Origin to send;
    None: not set.
    """
    subprotocol: str | None
    """subprotocol: text, default None: ws: the only one to offer or accept: ZWS2.0/NULL, ZWS2.0
    or one of SP's, such as rep.sp.nanomsg.org; unset: all that fit. The slash is not allowed
    in an HTTP token, so strict servers answer 400 unless it is ZWS2.0; None: not set.
    """
    key: str
    """key: text, default '': cluster://: the file of the cluster's key."""
    seeds: str
    """seeds: text, default '': cluster://: addresses of nodes, separated by commas."""
    refresh: float | None
    """refresh: seconds, default 30.0: resolvers (dns://, file://): time from one result to the
    next look-up; None: only when the watch fires.
    """
    family: int
    """family: int, default 0: dns://: 4 or 6 takes only addresses of IPv4 or of IPv6."""
    nameserver: str
    """nameserver: text, default '': srv://: the name server to ask, ADDRESS or ADDRESS:PORT;
    empty: the system's.
    """

class NamedEndpointOptions(EndpointOptions, total=False):
    """What bind() and connect() of Router and Stream take."""
    peer_id: bytes
    """peer_id: bytes, default b'': use this routing id for the peer at this address, whatever
    it announces.
    """

class Options(EndpointOptions, total=False):
    """The options that every pattern has."""
    send_timeout: float | None
    """send_timeout: seconds, default None: how long a send waits for a peer or for space in its
    queue; None: for ever.
    """
    recv_timeout: float | None
    """recv_timeout: seconds, default None: how long a receive waits for a message; None: for
    ever.
    """
    linger: float | None
    """linger: seconds, default 1.0: how long close() keeps sending queued messages; 0 discards
    them; None: for ever.
    """
    send_hwm: int | None
    """send_hwm: int in messages, default 10000: messages queued per peer before the pattern
    blocks or drops; None: no limit.
    """
    recv_hwm: int | None
    """recv_hwm: int in messages, default 10000: received messages queued per peer before the
    socket stops reading from it. Messages of peers that have disconnected stay readable;
    None: no limit.
    """
    send_hwm_bytes: int | None
    """send_hwm_bytes: size in B, default 16777216: the same limit in bytes; a single message
    always fits; None: no limit.
    """
    recv_hwm_bytes: int | None
    """recv_hwm_bytes: size in B, default 16777216: the same limit in bytes; a single message
    always fits; None: no limit.
    """
    on_full: Literal["pattern", "block", "drop_new", "disconnect"]
    """on_full: choice, default 'pattern': what happens when a peer's queue is full; 'pattern'
    is the pattern's own rule.
    """
    conflate: bool
    """conflate: bool, default False: keep only the newest message per peer (single-part)."""
    immediate: bool
    """immediate: bool, default False: never queue for an endpoint that is not connected."""
    max_unfinished: int | None
    """max_unfinished: size in B, default 1073741824: total size of incomplete messages from all
    peers. A peer that exceeds it is disconnected. The first 64 KiB of a message do not
    count, and a single message always fits; None: no limit.
    """
    max_departed: int | None
    """max_departed: int in peers, default 8192: disconnected peers whose messages are still
    unread. At this number, or when these messages take `recv_hwm_bytes`, the socket accepts
    no connection until some have been received; None: no limit.
    """
    routing_id: bytes
    """routing_id: bytes, default b'': the name under which peers know this socket (ROUTER's
    messages, `Peer.routing_id`); not sent over SP; must not start with a zero byte.
    """
    metadata: Mapping[str, bytes | str]
    """metadata: metadata, default mappingproxy({}): names and values that peers see in
    Peer.metadata.
    """
    max_hops: int
    """max_hops: int in devices, default 8: a message that has passed more devices is dropped,
    which ends routing loops.
    """

class ContextOptions(Options, total=False):
    """The defaults that a Context takes for its sockets."""
    correlate: bool | None
    """correlate: bool, default None: number requests, so that a late reply is recognized
    without a new connection; None: automatic: SP yes, ZMTP no.
    """
    strict: bool
    """strict: bool, default False: refuse a second send before the reply instead of abandoning
    the first.
    """
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""
    resend: float | None
    """resend: seconds, default None: send an unanswered request again after this time, and at
    once if its link is lost; 0: never; None: after 60 s to SP peers.
    """
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """
    mandatory: bool
    """mandatory: bool, default True: raise for an unknown or full peer instead of dropping
    (stream: wait for a full one).
    """
    handover: bool
    """handover: bool, default True: a newer peer takes over the routing id of an older one."""
    notify: bool
    """notify: bool, default False: report new and closed connections by empty messages."""
    nodrop: bool
    """nodrop: bool, default False: wait for peers whose queues are full instead of dropping."""
    retain: int
    """retain: int, default 0: the last n messages per first part, sent to each new
    subscription.
    """
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """
    verbose: bool
    """verbose: bool, default False: notify of every subscribe, not only of a topic's first."""
    verboser: bool
    """verboser: bool, default False: notify of every subscribe and of every cancel."""
    manual: bool
    """manual: bool, default False: apply subscriptions only by subscribe()."""
    welcome: bytes | None
    """welcome: bytes, default None: a message that each new peer gets first; None: not set."""
    poly: bool
    """poly: bool, default False: any number of peers; send_to() names one."""
    raw: bool
    """raw: bool, default False: the application handles the envelope, as devices do."""
    deadline: float
    """deadline: seconds, default 1.0: time for the answers to a survey."""

class SocketAttributes:
    """The options that every socket has, as attributes."""
    backlog: int
    """backlog: int in connections, default 1024: connections that may wait to be accepted."""
    bind_device: str | None
    """bind_device: text, default None: tcp and udp: the network device that all packets must
    use (SO_BINDTODEVICE); None: any.
    """
    conflate: bool
    """conflate: bool, default False: keep only the newest message per peer (single-part)."""
    congestion_control: str | None
    """congestion_control: text, default None: TCP's congestion control, by the kernel's name
    (TCP_CONGESTION); None: the system's own, but 'reno' instead of BBR within one machine.
    """
    connect_timeout: float | None
    """connect_timeout: seconds, default 10.0: time limit of one attempt to connect to one
    address; None: the system's own.
    """
    family: int
    """family: int, default 0: dns://: 4 or 6 takes only addresses of IPv4 or of IPv6."""
    handshake_timeout: float | None
    """handshake_timeout: seconds, default 10.0: time limit from the connection to the end of
    the handshake; None: for ever.
    """
    heartbeat: float | None
    """heartbeat: seconds, default 15.0: interval of pings to the peer; None: off."""
    heartbeat_timeout: float | None
    """heartbeat_timeout: seconds, default 30.0: disconnect a peer from which nothing arrives
    for this long after a ping; time in which a full queue keeps the socket from reading does
    not count; None: for ever.
    """
    heartbeat_ttl: float
    """heartbeat_ttl: seconds, default 0.0: asks the peer to disconnect us after this much
    silence; 0 does not ask.
    """
    idle_after: float | None
    """idle_after: seconds, default 60.0: sockets that receive: time without a message from a
    peer after which events() reports Idle, once per pause; None: never.
    """
    immediate: bool
    """immediate: bool, default False: never queue for an endpoint that is not connected."""
    keepalive: bool
    """keepalive: bool, default True: TCP keep-alive: the kernel probes an idle peer and ends
    the connection if it is dead.
    """
    keepalive_count: int | None
    """keepalive_count: int in probes, default 6: TCP keep-alive: unanswered probes before the
    connection ends; None: the system's own.
    """
    keepalive_idle: int | None
    """keepalive_idle: int in s, default 60: TCP keep-alive: idle time before the first probe;
    None: the system's own.
    """
    keepalive_interval: int | None
    """keepalive_interval: int in s, default 10: TCP keep-alive: time between probes; None: the
    system's own.
    """
    key: str
    """key: text, default '': cluster://: the file of the cluster's key."""
    linger: float | None
    """linger: seconds, default 1.0: how long close() keeps sending queued messages; 0 discards
    them; None: for ever.
    """
    max_departed: int | None
    """max_departed: int in peers, default 8192: disconnected peers whose messages are still
    unread. At this number, or when these messages take `recv_hwm_bytes`, the socket accepts
    no connection until some have been received; None: no limit.
    """
    max_handshakes: int | None
    """max_handshakes: int in connections, default 1024: connections per listener that may be in
    their handshake. One more disconnects the oldest of them; None: no limit.
    """
    max_hops: int
    """max_hops: int in devices, default 8: a message that has passed more devices is dropped,
    which ends routing loops.
    """
    max_message_size: int | None
    """max_message_size: size in B, default 1073741824: a larger message from a peer ends its
    connection; None: no limit.
    """
    max_unfinished: int | None
    """max_unfinished: size in B, default 1073741824: total size of incomplete messages from all
    peers. A peer that exceeds it is disconnected. The first 64 KiB of a message do not
    count, and a single message always fits; None: no limit.
    """
    metadata: Mapping[str, bytes | str]
    """metadata: metadata, default mappingproxy({}): names and values that peers see in
    Peer.metadata.
    """
    multicast_hops: int
    """multicast_hops: int, default 1: routers that a multicast datagram may pass, plus 1; 0: it
    stays on this machine.
    """
    multicast_loop: bool
    """multicast_loop: bool, default True: this machine also receives its own multicast."""
    nameserver: str
    """nameserver: text, default '': srv://: the name server to ask, ADDRESS or ADDRESS:PORT;
    empty: the system's.
    """
    on_full: Literal["pattern", "block", "drop_new", "disconnect"]
    """on_full: choice, default 'pattern': what happens when a peer's queue is full; 'pattern'
    is the pattern's own rule.
    """
    origin: str | None
    """origin: text, default None: ws: which pages may connect: origins like
    https://example.org, separated by spaces, or * for all; unset: pages of the listener's
    own host and port, on loopback only under loopback names. Connecting: the Origin to send;
    None: not set.
    """
    peer_uid: int | None
    """peer_uid: int, default None: shm: the user that the peer must run as; None: the same
    user, -1: any user who may open the socket.
    """
    prio: int
    """prio: int, default 8: messages go to the best level that has a peer with space; 1 is
    best.
    """
    reconnect: float | None
    """reconnect: seconds, default 0.1: pause before the first reconnect; doubles each time,
    less a random part of up to half; None: never.
    """
    reconnect_max: float
    """reconnect_max: seconds, default 10.0: longest pause between attempts."""
    reconnect_stop: Collection[Literal["refused", "handshake"]]
    """reconnect_stop: choices, default (): errors after which the socket stops trying:
    connection refused, handshake failed.
    """
    recv_buffer: int | None
    """recv_buffer: size in B, default None: the kernel's receive buffer; None: the system's
    own.
    """
    recv_hwm: int | None
    """recv_hwm: int in messages, default 10000: received messages queued per peer before the
    socket stops reading from it. Messages of peers that have disconnected stay readable;
    None: no limit.
    """
    recv_hwm_bytes: int | None
    """recv_hwm_bytes: size in B, default 16777216: the same limit in bytes; a single message
    always fits; None: no limit.
    """
    recv_timeout: float | None
    """recv_timeout: seconds, default None: how long a receive waits for a message; None: for
    ever.
    """
    refresh: float | None
    """refresh: seconds, default 30.0: resolvers (dns://, file://): time from one result to the
    next look-up; None: only when the watch fires.
    """
    ring: int
    """ring: size, default 262144: shm: size of each of the two rings, a power of two; the
    connecting side sets it.
    """
    routing_id: bytes
    """routing_id: bytes, default b'': the name under which peers know this socket (ROUTER's
    messages, `Peer.routing_id`); not sent over SP; must not start with a zero byte.
    """
    security: Security | None
    """security: security, default None: ZMTP over streams: authentication and encryption by
    Null(), Plain() or Curve(); None: NULL: any peer may come, and everything is readable.
    """
    seeds: str
    """seeds: text, default '': cluster://: addresses of nodes, separated by commas."""
    send_buffer: int | None
    """send_buffer: size in B, default None: the kernel's send buffer; None: the system's own."""
    send_hwm: int | None
    """send_hwm: int in messages, default 10000: messages queued per peer before the pattern
    blocks or drops; None: no limit.
    """
    send_hwm_bytes: int | None
    """send_hwm_bytes: size in B, default 16777216: the same limit in bytes; a single message
    always fits; None: no limit.
    """
    send_timeout: float | None
    """send_timeout: seconds, default None: how long a send waits for a peer or for space in its
    queue; None: for ever.
    """
    spin: float
    """spin: seconds, default 2.5e-05: shm: how long a receive polls for a message before it
    sleeps, while that pays off; 0: never.
    """
    subprotocol: str | None
    """subprotocol: text, default None: ws: the only one to offer or accept: ZWS2.0/NULL, ZWS2.0
    or one of SP's, such as rep.sp.nanomsg.org; unset: all that fit. The slash is not allowed
    in an HTTP token, so strict servers answer 400 unless it is ZWS2.0; None: not set.
    """
    tls_ca: str | None
    """tls_ca: text, default None: trusted CAs: a PEM file of certificates, or a folder of such
    files; None: the system's.
    """
    tls_cert: str | None
    """tls_cert: text, default None: the certificate to show, a PEM file that also has the CA
    certificates between it and the root; None: no certificate, for connecting sockets only.
    """
    tls_context: ssl.SSLContext | None
    """tls_context: object, default None: your own context instead of these options (except
    beside it); never in a URL; None: not set.
    """
    tls_hostname: str | None
    """tls_hostname: text, default None: the name that the server must have, also sent as SNI;
    None: the URL's host.
    """
    tls_key: str | None
    """tls_key: text, default None: its private key, a PEM file that other users cannot read;
    None: in the file of tls_cert.
    """
    tls_key_password: str | None
    """tls_key_password: secret, default None: the password of an encrypted key; never in a URL;
    None: not set.
    """
    tls_min_version: Literal["1.2", "1.3"]
    """tls_min_version: choice, default '1.2': the oldest TLS version to accept."""
    tls_mutual: bool | None
    """tls_mutual: bool, default None: a listening socket only accepts clients with a
    certificate of tls_ca; None: yes if tls_ca is given.
    """
    tls_verify: Literal["full", "ca", "none"]
    """tls_verify: choice, default 'full': how a connecting socket verifies a server:
    certificate and host name, certificate only, or not at all.
    """
    tos: int
    """tos: int, default 0: IP type-of-service byte of outgoing packets."""
    upgrade: bool
    """upgrade: bool, default False: tcp and ipc: use shared memory with a peer of the same user
    on this machine that has this option, too.
    """
    wire: Literal["zmtp", "sp"] | None
    """wire: choice, default None: which protocol a connecting socket speaks; None: the
    pattern's natural one.
    """
