"""Says why zmq.green cannot be imported."""

from mqcore.zmq.differences import missing

raise ImportError(missing("green"))
