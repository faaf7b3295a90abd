"""A strategy as one Python class: the strategies' door without a compiler.

    class Nearest(Strategy):
        "each message to the peer with the lowest number in its routing id"
        abi = 1
        name = "nearest"

        def choose(self, peers):
            return min(range(len(peers)), key=lambda i: peers[i].routing_id)

and, in pyproject.toml, `[project.entry-points."mqcore.strategies"] nearest = "my_module:Nearest"`:
from then on `strategy="nearest"` works for every socket that spreads its load. Without an entry
point it is `strategy="my_module:Nearest"`. For the fast way, and for what is said there of peers
that are full or silent, see strategy.pxd.

**One instance a socket**, made without arguments when the strategy is assigned.

**Who calls, on which thread.** The socket, with its lock and the GIL held, on whatever thread sends
or brings a peer. Never two at a time. So it must not wait, and it must not call sockets: that is a
StateError.

**Errors.** Whatever `choose` raises, and an answer that is no index, becomes a PatternFailed event
and a line in the log, once a run, and the message goes to the next peer in turn: it is never lost.
What a signal's handler raises there is raised again in the main thread once the socket is free.
"""

from __future__ import annotations

from typing import ClassVar

from mqcore.spi.strategy import Candidate, Candidates

__all__ = ["PYTHON_STRATEGY_ABI", "Candidate", "Candidates", "Strategy"]

PYTHON_STRATEGY_ABI = 1


class Strategy:
    """Base of strategies in Python."""

    #: PYTHON_STRATEGY_ABI that the class was written for: a number, not the constant
    abi: ClassVar[int | None] = None
    #: what the option and the entry point call it: lower-case letters, digits, "_"
    name: ClassVar[str] = ""

    def choose(self, peers: Candidates) -> int:
        """The index in `peers`, two or more, of the one that gets the next message. What they
        have: `id`, `prio`, `load` (messages queued and requests not answered), `owed` (of them the
        requests), `connected`, `routing_id`; `peers.size` is the message's, in bytes."""
        raise NotImplementedError(f"the strategy {self.name!r} has no choose()")
