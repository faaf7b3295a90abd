"""A durable work queue: a server, a producer, workers. Kill any of them; no job is lost.

    queue_work.py serve [FOLDER [URL]]          ends with Ctrl-C
    queue_work.py put URL N                     N jobs
    queue_work.py work URL [SECONDS]            until there was no job for so long (for ever)

Start the server and several workers, each in a terminal of its own. Kill a worker in the middle of
a job (kill -9): another worker gets the job, and prints that it is a repetition.
"""

import sys
import time
from collections.abc import Callable

from mqcore import RecvTimeout, journal

QUEUE = "squares"


def serve(folder: str = "queue-data", url: str = "tcp://127.0.0.1:5559") -> None:
    with journal.serve_queues(folder, url) as server:
        print(server.urls[0], flush=True)
        server.wait_stopped()


def put(url: str, count: str) -> None:
    with journal.queue(url, QUEUE) as queue:
        queue.put_many(b"%d" % number for number in range(int(count)))
    print(f"{count} jobs are stored")


def work(url: str, patience: str = "inf") -> None:
    timeout = None if patience == "inf" else float(patience)
    with journal.queue(url, QUEUE) as queue:
        while True:
            try:
                job = queue.get(timeout=timeout)
            except RecvTimeout:
                return
            with job:                   # acknowledged at the end, given back after an exception
                again = " (again)" if job.redelivered else ""
                time.sleep(0.01)        # the work
                print(f"{int(job.body) ** 2}{again}", flush=True)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"serve": serve, "put": put, "work": work}
    try:
        commands[sys.argv[1]](*sys.argv[2:])
    except (LookupError, TypeError):
        sys.exit(__doc__)
    except KeyboardInterrupt:
        pass
