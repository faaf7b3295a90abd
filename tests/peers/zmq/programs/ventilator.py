"""Tasks dealt out to processes, their results collected."""
import subprocess
import sys

import zmq

WORKER = """
import sys, zmq
context = zmq.Context()
tasks = context.socket(zmq.PULL)
tasks.connect(sys.argv[1])
results = context.socket(zmq.PUSH)
results.connect(sys.argv[2])
control = context.socket(zmq.SUB)
control.connect(sys.argv[3])
control.subscribe("")
results.send_json({"ready": True})
poller = zmq.Poller()
poller.register(tasks, zmq.POLLIN)
poller.register(control, zmq.POLLIN)
while True:
    ready = dict(poller.poll())
    if tasks in ready:
        results.send_json({"square": int(tasks.recv()) ** 2})
    if control in ready:
        break
context.destroy()
print(zmq.__name__, flush=True)
"""

context = zmq.Context()
tasks = context.socket(zmq.PUSH)
results = context.socket(zmq.PULL)
control = context.socket(zmq.XPUB)
control.setsockopt(zmq.XPUB_VERBOSE, 1)
urls = []
for socket in (tasks, results, control):
    socket.bind("tcp://127.0.0.1:*")
    urls.append(socket.getsockopt(zmq.LAST_ENDPOINT).decode())
command = [sys.executable, "-c", WORKER, *urls]
workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
for _ in workers:
    assert results.recv_json() == {"ready": True}
    assert control.recv() == b"\1"
for number in range(100):
    tasks.send(b"%d" % number)
print(sum(results.recv_json()["square"] for _ in range(100)))
control.send(b"KILL")
for worker in workers:
    output, _ = worker.communicate()
    print(output.strip() == zmq.__name__, worker.returncode)
context.destroy()
