"""Says why zmq.auth cannot be imported."""

from mqcore.zmq.differences import missing

raise ImportError(missing("auth"))
