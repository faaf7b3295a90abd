"""A simulated network for tests: delay, loss, partitions and slow hosts, in virtual time and from a
seed, so that a run that failed can be replayed. README.md in mqcore/testing says how."""

from mqcore.testing.network.world import Event, Host, Network, Stuck

__all__ = ["Event", "Host", "Network", "Stuck"]
