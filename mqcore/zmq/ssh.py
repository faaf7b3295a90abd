"""Says why zmq.ssh cannot be imported."""

from mqcore.zmq.differences import missing

raise ImportError(missing("ssh"))
