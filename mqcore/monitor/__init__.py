"""See a program run: what its contexts publish, and how to read it.

    import mqcore as mq
    from mqcore import monitor

    with mq.Context(monitor=True) as context:       # or MQCORE_MONITOR=1 in the environment
        ...

    for seen in monitor.look():                     # in another process of the same user
        print(seen.process.program, len(seen.sockets))

PROTOCOL.md beside this file has the messages.
"""

from mqcore.monitor.agent import Publish
from mqcore.monitor.client import Client, look
from mqcore.monitor.place import discover, folder
from mqcore.monitor.protocol import (
    ComponentFacts,
    Components,
    ContextFacts,
    Counters,
    EndpointFacts,
    EventFacts,
    Explanation,
    Failure,
    Malformed,
    PeerFacts,
    Process,
    Snapshot,
    SocketFacts,
    Welcome,
)

__all__ = [
    "Client", "ComponentFacts", "Components", "ContextFacts", "Counters", "EndpointFacts",
    "EventFacts", "Explanation", "Failure", "Malformed", "PeerFacts", "Process", "Publish",
    "Snapshot", "SocketFacts", "Welcome", "discover", "folder", "look",
]
