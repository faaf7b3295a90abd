"""HTTP clients at sockets and journals: requests, long polls, Server-Sent Events, WebSockets.

    from mqcore import http

    with http.serve({"/orders": "push:tcp://127.0.0.1:5555"}, bind="http://127.0.0.1:0") as server:
        print(server.url)

`mq http` is the same as a command. Only declared routes exist.
"""

from __future__ import annotations

from mqcore.http.access import RECEIVE, SEND, STATS, Token, read_tokens
from mqcore.http.bounds import Limits, Stats
from mqcore.http.gateway import Gateway
from mqcore.http.route import Route
from mqcore.http.serving import Server, serve

__all__ = ["RECEIVE", "SEND", "STATS", "Gateway", "Limits", "Route", "Server", "Stats", "Token",
           "read_tokens", "serve"]
