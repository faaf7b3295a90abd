"""Says why zmq.eventloop cannot be imported."""

from mqcore.zmq.differences import missing

raise ImportError(missing("eventloop"))
