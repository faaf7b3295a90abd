"""How a node drains: what adrain() waits for before the node leaves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqcore.cluster.node import Core


async def drain(node: Core, timeout: float | None) -> bool:
    """Core.adrain()."""
    node.draining = True
    for service in node.services.values():
        service.draining = True
    node.announce()
    links, requests = node.links, node.requests
    before, end = links.broke_off, timeout and time.monotonic() + timeout
    # what this node's own tasks begin from now on is not waited for, else it might never end; what
    # handlers begin keeps their services busy
    tunnels = node.tunnels.sending

    def finished() -> bool:
        links.confirm()
        return node.closed or not (
            requests.pending > requests.late or links.holds or not arrived()
            or any(service.busy for service in node.services.values()))

    def arrived() -> bool:
        return all(tunnel._arrived for tunnel in tunnels)

    def left() -> float | None:
        return end and max(0.0, end - time.monotonic())

    done = await node.until(finished, timeout)
    if done:        # a handler may have sent its end and returned
        tunnels = [tunnel for tunnel in node.tunnels.sending if tunnel._flow.eof_out]
        done = await node.until(arrived, left())
    if done:        # and until answers have arrived, which the end of a connection may prevent
        due = {link: link.answered for link in links.by_rid.values() if link.owes}
        done = await links.taken(list(due), left()) \
            and not any(link.confirmed < answered and link.owes and link.member is not None
                        for link, answered in due.items())
    if not node.closed:     # by another call
        node.drained = done and links.broke_off == before
        await node.aclose()
    return node.drained
