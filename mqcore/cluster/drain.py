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
    links = node.links
    before, end = links.broke_off, timeout and time.monotonic() + timeout

    def finished() -> bool:
        links.confirm()
        return node.closed or not (
            node.requests.pending or links.holds or node.tunnels.sending
            or any(service.busy for service in node.services.values()))

    done = await node.until(finished, timeout)
    if done:        # and until answers have arrived, which the end of a connection may prevent
        due = {link: link.answered for link in links.by_rid.values() if link.owes}
        done = await links.taken(list(due), end and max(0.0, end - time.monotonic())) \
            and not any(link.confirmed < answered and link.owes and link.member is not None
                        for link, answered in due.items())
    if not node.closed:     # by another call
        node.drained = done and links.broke_off == before
        await node.aclose()
    return node.drained
