"""The socket of a journal server or a queue server: its bounds, and whom its addresses let in."""

from __future__ import annotations

import logging
from typing import Any

from mqcore import Router
from mqcore.errors import UsageError
from mqcore.journal.server import exposure

_log = logging.getLogger("mqcore.journal")


def listen(what: str, example: str, may: str, bind: Any, insecure: bool, largest: int, several: int,
           options: dict[str, Any]) -> Router:
    """`largest`: bytes of a request, of which a peer may have `several` waiting. `may`: what peers
    may do there. Raises UsageError if an address is exposed, and what bind() raises."""
    options = {"max_message_size": largest, "linger": 0, "send_hwm": 1000, "recv_hwm": 1000,
               "recv_hwm_bytes": several * largest, **options}
    urls = [bind] if isinstance(bind, str) else [str(url) for url in bind]
    if not urls:
        raise UsageError(f"a {what} server without an address",
                         hint=f'give it one or several: "{example}"')
    socket = Router(**options)
    try:
        if not insecure:
            exposure.check(urls, socket.security, may)
        for url in urls:
            socket.bind(url)
    except BaseException:
        socket.close(0)
        raise
    if exposure.open_to_all(urls, socket.security, options):
        _log.warning("any peer that reaches %s may %s: name the peers with Curve(allow=...) "
                     "(--allow), or let them show certificates with tls_ca", ", ".join(urls), may)
    return socket
