"""A notebook's kernel over ipc, by an asynchronous manager. argv: the kernel's PYTHONPATH."""
import asyncio
import os
import sys

import zmq
from jupyter_client.manager import AsyncKernelManager

LIMIT = 30


async def main():
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
    await manager.start_kernel(env={**os.environ, "PYTHONPATH": sys.argv[1]})
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=LIMIT)
    told = []
    await client.execute_interactive("import zmq\nprint(zmq.__name__)", timeout=LIMIT,
                                     output_hook=told.append)
    print(zmq.__name__, [message["content"]["text"] for message in told
                         if message["msg_type"] == "stream"])
    client.execute("import time\nprint('begun')\nwhile True: time.sleep(0.01)")
    while True:
        message = await client.get_iopub_msg(timeout=LIMIT)
        if "begun" in message["content"].get("text", ""):
            break
    await manager.interrupt_kernel()
    print((await client.get_shell_msg(timeout=LIMIT))["content"]["ename"])
    client.is_complete("for i in (1, 2):")
    print((await client.get_shell_msg(timeout=LIMIT))["content"]["status"])
    kernel = manager.provisioner.process
    client.stop_channels()
    manager.shutdown_wait_time = 4 * LIMIT    # half of it passes before a signal is sent
    await manager.shutdown_kernel()
    print(kernel.poll(), manager.has_kernel)


asyncio.run(main())
