"""A notebook's kernel from start to end, by a blocking manager. argv: the kernel's PYTHONPATH."""
import os
import signal
import sys
import time

import zmq
from jupyter_client.manager import KernelManager

LIMIT = 30


def run(code, **kwargs):
    told = []
    reply = client.execute_interactive(code, timeout=LIMIT, output_hook=told.append, **kwargs)
    texts = [message["content"].get("text", "") for message in told]
    return reply["content"], "".join(texts), told


def until(beating):
    end = time.monotonic() + LIMIT
    while client.hb_channel.is_beating() != beating:
        assert time.monotonic() < end
        time.sleep(0.01)


manager = KernelManager(kernel_name="python3")
manager.start_kernel(env={**os.environ, "PYTHONPATH": sys.argv[1]})
client = manager.client()
client.hb_channel.time_to_dead = 0.1
client.start_channels()
client.wait_for_ready(timeout=LIMIT)

reply, text, told = run("import zmq; here = print('text', zmq.__name__)\n6 * 7")
print(zmq.__name__, text.split(), reply["status"],
      [message["content"]["data"]["text/plain"] for message in told
       if message["msg_type"] == "execute_result"])
reply, text, _ = run("print(input('name? '))", allow_stdin=True,
                     stdin_hook=lambda message: client.input("me"))
print(text.split())
reply, text, _ = run("for i in range(2000): print(i)")
print(len(text.split()), reply["status"])
reply, _, told = run("from IPython.display import display\n"
                     "display({'text/plain': 3_000_000 * 'x'}, raw=True)")
print(max(len(message["content"].get("data", {}).get("text/plain", "")) for message in told))

client.execute("import time\nprint('begun')\nwhile True: time.sleep(0.01)")
while "begun" not in client.get_iopub_msg(timeout=LIMIT)["content"].get("text", ""):
    pass
manager.interrupt_kernel()
print(client.get_shell_msg(timeout=LIMIT)["content"]["ename"])

until(True)
manager.signal_kernel(signal.SIGSTOP)
until(False)
manager.signal_kernel(signal.SIGCONT)
until(True)

manager.restart_kernel(now=True)
client.wait_for_ready(timeout=LIMIT)
print(run("here")[0]["ename"])
kernel = manager.provisioner.process
client.stop_channels()
manager.shutdown_wait_time = 4 * LIMIT    # half of it passes before a signal is sent
manager.shutdown_kernel()
print(kernel.poll(), manager.has_kernel)
