"""A strategy as a Python class: the plug-in interface of strategies without a compiler.

    class Nearest(Strategy):
        "each message to the peer with the lowest number in its routing id"
        abi = 1
        name = "nearest"

        def choose(self, peers):
            return min(range(len(peers)), key=lambda i: peers[i].routing_id)

and, in pyproject.toml, `[project.entry-points."mqcore.strategies"] nearest = "my_module:Nearest"`:
Then `strategy="nearest"` works for every socket that balances its load. Without an entry point use
`strategy="my_module:Nearest"`. For the fast way, and for full or unresponsive peers, see
strategy.pxd.

**One instance per socket**, created without arguments when the strategy is assigned.

**Callers and threads.** The socket calls `choose` with its lock and the GIL held, on any thread
that sends or attaches a peer. Calls never overlap. `choose` must not wait, and must not call
sockets, which raises StateError.

**Errors.** If `choose` raises, or returns something that is not an index, the socket emits a
PatternFailed event and logs it, once per run. The message goes to the next peer in turn and is
never lost. An exception of a signal handler is raised again in the main thread once the socket is
free.
"""

from __future__ import annotations

from typing import ClassVar

from mqcore.spi.python.strategy_ops import Candidate, Candidates

__all__ = ["PYTHON_STRATEGY_ABI", "Candidate", "Candidates", "Strategy"]

PYTHON_STRATEGY_ABI = 1


class Strategy:
    """Base class of strategies in Python."""

    #: the PYTHON_STRATEGY_ABI that the class was written for, as a number, not the constant
    abi: ClassVar[int | None] = None
    #: the name for the option and the entry point: lower-case letters, digits, "_"
    name: ClassVar[str] = ""

    def choose(self, peers: Candidates) -> int:
        """Return the index in `peers` (two or more) of the peer that gets the next message. A
        candidate has `id`, `prio`, `load` (queued messages and unanswered requests), `owed` (the
        latter alone), `connected` and `routing_id`. `peers.size` is the message's size in bytes."""
        raise NotImplementedError(f"the strategy {self.name!r} has no choose()")
