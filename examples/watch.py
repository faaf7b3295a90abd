"""Show the sockets of all monitored programs of this user, and what else they run, once.

Start another program with MQCORE_MONITOR=1 in its environment, then run this one.
"""

from mqcore import monitor

with monitor.Client() as client:
    for shot in client.snapshots():
        print(f"{shot.process.program} {shot.process.pid}")
        for sock in shot.sockets:
            print(f"  {sock.pattern}: {sock.sent} sent, {sock.received} received, "
                  f"{sock.connected} connected")
    for answer in client.components():      # devices, journals, queues, cluster nodes, bridges
        for one in answer.components:
            print(f"{answer.process.program} {answer.process.pid}: {one.kind} {one.name} "
                  f"{one.state}")
