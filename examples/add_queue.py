"""The addition service with several workers: a queue device between the same two programs.

    add_queue.py [FRONT-URL [WORKERS]]

Clients connect to the front, as they connected to the server before. The workers are add_server.py,
told to connect instead of to bind; start more of them by hand at any time, or stop some:

    add_server.py connect BACK-URL
"""

import signal
import subprocess
import sys
from pathlib import Path

import mqcore as mq

WORKER = Path(__file__).with_name("add_server.py")


def main(front_url: str = "tcp://127.0.0.1:5555", workers: str = "3") -> None:
    front = mq.Router(bind=front_url)
    back = mq.Dealer(bind="tcp://127.0.0.1:0")
    urls = front.endpoints[0].url, back.endpoints[0].url
    processes: list[subprocess.Popen[bytes]] = []
    with mq.device(front, back) as queue:
        try:
            for _ in range(int(workers)):
                processes.append(subprocess.Popen([sys.executable, WORKER, "connect", urls[1]]))
            print(f"clients: {urls[0]}\nworkers: {urls[1]}", flush=True)
            queue.wait_stopped()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=10)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
