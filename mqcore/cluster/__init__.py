"""Services by name: a cluster of nodes without a broker.

    key = cluster.Key.load("prod.key")
    async with cluster.ajoin(key, seeds=["tcp://10.0.0.5:7400"]) as net:
        answer = await net.arequest("adder", b"1 2", timeout=1.0)

An application addresses a service, never a host. A request goes to one member that offers it, a
broadcast to all, a publication to all who subscribed, and a tunnel is a stream to one member. All
nodes of a cluster share one key.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqcore.cluster.blocking import Joined
    from mqcore.cluster.calls import Node
    from mqcore.cluster.directory import Event, Events, Member
    from mqcore.cluster.errors import (
        ClusterError,
        IdentityError,
        KeyFileError,
        KeyRejected,
        MalformedFrame,
        MemberLost,
        NodeClosed,
        NoSuchService,
        Overloaded,
        RemoteError,
        RequestTimeout,
        TunnelClosed,
    )
    from mqcore.cluster.federation import Gateway
    from mqcore.cluster.key import Key
    from mqcore.cluster.quota import Quota
    from mqcore.cluster.services import Incoming, Received, Service
    from mqcore.cluster.surveys import Answered, Survey
    from mqcore.cluster.topics import Feed, Publication
    from mqcore.cluster.tunnel import Tunnel

__all__ = ["Answered", "ClusterError", "Event", "Events", "Feed", "Gateway", "IdentityError",
           "Incoming", "Key", "KeyFileError", "KeyRejected", "MalformedFrame", "Member",
           "MemberLost", "NoSuchService", "Node", "NodeClosed", "Overloaded", "Publication",
           "Quota", "Received", "RemoteError", "RequestTimeout", "Service", "Survey", "Tunnel",
           "TunnelClosed", "ajoin", "join"]

# Imported when they are used: the resolver of cluster:// is loaded without the extra's packages.
_NAMES = {
    "calls": "Node",
    "directory": "Event Events Member",
    "errors":
        "ClusterError IdentityError KeyFileError KeyRejected MalformedFrame MemberLost NodeClosed "
        "NoSuchService Overloaded RemoteError RequestTimeout TunnelClosed",
    "federation": "Gateway",
    "key": "Key",
    "quota": "Quota",
    "services": "Incoming Received Service",
    "surveys": "Answered Survey",
    "topics": "Feed Publication",
    "tunnel": "Tunnel",
}
_HOME_OF = {name: f"mqcore.cluster.{home}"
            for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def ajoin(key: Key, *, listen: str | Iterable[str] = "tcp://127.0.0.1:0",
          seeds: str | Iterable[str] = (), zone: str = "", version: str = "",
          url: str | None = None, udp: bool = True,
          identity: str | PathLike[str] | None = None) -> Node:
    """Join a cluster, within `async with`, on asyncio or trio.

    Args:
        key: the cluster's key. Every process that has it can join.
        listen: addresses to accept links at; port 0 is a free one.
        seeds: addresses of other nodes, `dns://name:port`, `srv://_mq._tcp.name`, `file:///path`,
            "lan". One that can be reached is enough: it names all others. Without seeds the node is
            the first of a cluster.
        zone: members of the own zone are preferred.
        version: a text that other members see.
        url: the address to give to others, if it differs from the one listened at.
        udp: use UDP for the membership protocol; otherwise it runs over the links.
        identity: a file that keeps this node's id over restarts. It is made if there is none, and
            only one node at a time can use it. Without it, a node has a new id each time.

    Raises KeyRejected if no seed lets this node in and one says that the key is another or that
    this node is banned, and IdentityError. Seeds that cannot be reached are tried again for ever;
    `explain()` names them.
    """
    from mqcore.cluster.calls import Node

    return Node(key, listen=listen, seeds=seeds, zone=zone, version=version, url=url, udp=udp,
                identity=identity)


def join(key: Key, *, listen: str | Iterable[str] = "tcp://127.0.0.1:0",
         seeds: str | Iterable[str] = (), zone: str = "", version: str = "",
         url: str | None = None, udp: bool = True,
         identity: str | PathLike[str] | None = None) -> Joined:
    """ajoin() for programs without an event loop, within `with`. The node runs in a thread."""
    from mqcore.cluster.blocking import Joined

    return Joined(lambda: ajoin(key, listen=listen, seeds=seeds, zone=zone, version=version,
                                url=url, udp=udp, identity=identity))
