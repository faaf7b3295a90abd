"""SocketLinks: the control plane of one socket: its listeners and connectors, its engines and peers
as reported by the data plane's notes, its events, and its end.

Runs on the control thread and on the caller's, under the hub's lock where it touches the tables:

    tables.py       what is known of the socket, and what the others share
    peers.py        connections and peers: they come, they go, what they did
    endpoints.py    bind, connect, unbind, disconnect
    closing.py      the end
"""

from __future__ import annotations

from mqcore.control.closing import Closing
from mqcore.control.endpoints import Endpoints


class SocketLinks(Endpoints, Closing):
    """What a socket, its hub and its endpoints hold of the socket's control plane."""
