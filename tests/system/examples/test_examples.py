"""Each program of examples/ runs and does what it says, as processes."""

import signal
import threading
from pathlib import Path

import pytest
from programs import run, starter

import mqcore as mq

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def start():
    with starter() as function:
        yield lambda name, *args, **more: function(EXAMPLES / name, *args, **more)


def test_one_server_one_client(start, tmp_path):
    url = f"ipc://{tmp_path}/add"
    start("add_server.py", "bind", url)
    assert run(EXAMPLES / "add_client.py", 20, 22, url)[:2] == (0, b"42\n")
    assert run(EXAMPLES / "add_client.py", "20", "x", url)[:2] == (0, b"two integers, please\n")


def queue_of(start, tmp_path, workers):
    queue = start("add_queue.py", f"ipc://{tmp_path}/add", workers)
    return [queue.line().split()[1] for _ in range(2)]


def test_the_same_two_through_a_queue(start, tmp_path):
    front, _ = queue_of(start, tmp_path, 3)
    for a in range(3):
        assert run(EXAMPLES / "add_client.py", a, 40, front)[:2] == (0, b"%d\n" % (a + 40))


class Load:
    """Clients that ask without a pause, each again when no answer comes, like add_client."""

    def __init__(self, url, clients=3):
        self.url = url
        self.context = mq.Context()
        self.stop = threading.Event()
        self.answered = [0] * clients
        self.asked_again = 0
        self.wrong = []
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(clients)]

    def ask(self, i):
        with mq.Req(connect=self.url, context=self.context) as client:
            while not self.stop.is_set():
                n = self.answered[i]
                try:
                    answer = client.request(b"%d %d" % (i, n), timeout=1.0)
                except mq.Timeout:
                    self.asked_again += 1
                    continue
                if int(answer) != i + n:
                    self.wrong.append((i, n, answer))
                self.answered[i] += 1

    def wait_for_more(self, each=50):
        """Until every client has had so many more answers: the load goes on."""
        want = [n + each for n in self.answered]
        changed = threading.Event()
        for _ in range(3000):
            if all(have >= n for have, n in zip(self.answered, want, strict=True)):
                return
            changed.wait(0.01)
        raise AssertionError(f"no progress: {self.answered}, asked again {self.asked_again} times")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.context.close()


def test_workers_come_and_go_under_load(start, tmp_path):
    front, back = queue_of(start, tmp_path, 1)
    with Load(front) as load:
        load.wait_for_more()
        added = [start("add_server.py", "connect", back) for _ in range(2)]
        load.wait_for_more()
        added.pop().end()
        load.wait_for_more()
        added.append(start("add_server.py", "connect", back))
        load.wait_for_more()
        for worker in added:
            worker.end()
        load.wait_for_more()
    assert not load.wrong


def test_a_pool_of_threads_answers_on_one_socket():
    status, out, err = run(EXAMPLES / "pool.py", 4, 6, 20)
    lines = out.decode().splitlines()
    assert status == 0 and lines[-1] == "30 primes below 120", err
    assert sum(int(line.split()[2]) for line in lines[:-1]) == 120


TICKS = 400


def counted(program):
    status, out, err = program.result()
    assert status == 0, err
    return {line.split()[0]: int(line.split()[1]) for line in out.splitlines()}


def test_a_feed(start, tmp_path):
    url = f"ipc://{tmp_path}/feed"
    everything = start("feed.py", "subscribe", url)
    one = start("feed.py", "subscribe", url, "EURUSD")
    assert start("feed.py", "publish", "bind", url, 2, TICKS).result()[0] == 0
    all_of_them = counted(everything)
    assert sum(all_of_them.values()) == TICKS
    assert counted(one) == {"EURUSD": all_of_them["EURUSD"]}


def test_a_feed_through_a_forwarder(start, tmp_path):
    urls = [f"ipc://{tmp_path}/{name}" for name in ("front", "back")]
    forwarder = start("feed.py", "forward", *urls, 2)
    assert forwarder.line().split() == urls
    everything = start("feed.py", "subscribe", urls[1])
    one = start("feed.py", "subscribe", urls[1], "USDJPY")
    assert start("feed.py", "publish", "connect", urls[0], 1, TICKS).result()[0] == 0
    all_of_them = counted(everything)
    assert sum(all_of_them.values()) == TICKS
    assert counted(one) == {"USDJPY": all_of_them["USDJPY"]}


def test_a_pipeline_gets_more_instances():
    status, out, err = run(EXAMPLES / "push_pull.py", 600)
    lines = out.decode().splitlines()
    assert status == 0 and lines[-1] == "600 items, each once", err
    assert len(lines) == 4 and all(int(line.split()[2]) > 0 for line in lines[:3])


def test_a_work_queue_and_a_killed_worker(start, tmp_path):
    url = start("queue_work.py", "serve", tmp_path / "data", f"ipc://{tmp_path}/q").line()
    assert run(EXAMPLES / "queue_work.py", "put", url, 30)[:2] == (0, b"30 jobs are stored\n")
    killed = start("queue_work.py", "work", url)
    done = [killed.line() for _ in range(3)]
    killed.end(signal.SIGKILL)
    status, out, err = run(EXAMPLES / "queue_work.py", "work", url, 5)
    assert status == 0, err
    done += out.decode().split("\n")[:-1]
    assert {int(line.split()[0]) for line in done} == {i * i for i in range(30)}
