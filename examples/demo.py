"""The demonstration: real input through three patterns, with pyzmq processes among the peers.

1. Every flight that left New York in 2013, carrier by carrier in time order, is published to four
   subscriber processes, one of them pyzmq.
2. The addition service adds minutes and miles of flights behind a queue device, for four clients,
   with three worker processes, one of them pyzmq.
3. A pipeline counts the words of Python's help texts in three processes, one of them pyzmq.

All totals are compared with those that plain Python computes from the input (demo_input.py). One
difference, and the exit status is 1.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import demo_input
from demo_peers import END, Result
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import mqcore as mq

PATIENCE = 60.0  # seconds for any one wait; all of it takes a fraction
SUBSCRIBERS = (("mqcore",), ("pyzmq",), ("mqcore", "UA", "DL", "B6"), ("mqcore", "HA", "OO"))
WORKERS = ("mqcore", "pyzmq", "mqcore")
CLIENTS = 4
PEERS = Path(__file__).with_name("demo_peers.py")


class Peers:
    """Child processes: started, read, and ended whatever happens."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.alive = os.pipe()  # their standard input, which ends when this process does

    def start(self, *args: str) -> None:
        self.processes.append(
            subprocess.Popen(
                [sys.executable, str(PEERS), *args],
                text=True,
                stdin=self.alive[0],
                stdout=subprocess.PIPE,
            )
        )

    def results(self) -> list[Result]:
        """One line of each, when it has ended."""
        lines = [process.communicate(timeout=PATIENCE)[0] for process in self.processes]
        if any(process.returncode for process in self.processes):
            raise RuntimeError(
                f"a process failed: {[p.args for p in self.processes if p.returncode]}"
            )
        return [json.loads(line) for line in lines]

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for end in self.alive:
            os.close(end)


class Report:
    """Rows of the table, and everything that did not come out as it should."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.wrong: list[str] = []

    def row(
        self,
        what: str,
        library: str,
        pid: int,
        messages: int,
        drops: int | None,
        rate: float | None = None,
        trips: tuple[float, float] | None = None,
    ) -> None:
        self.rows.append(
            (
                what,
                library,
                str(pid),
                f"{messages:,}",
                "-" if drops is None else str(drops),
                "" if rate is None else f"{rate:,.0f}",
                "" if trips is None else f"{trips[0] * 1e6:,.0f}",
                "" if trips is None else f"{trips[1] * 1e6:,.0f}",
            )
        )

    def compare(self, what: str, got: object, want: object) -> None:
        if got != want:
            self.wrong.append(f"{what}: {got} instead of {want}"[:200])

    def show(self, console: Console) -> None:
        table = Table("what", "library", "process", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1,
                                                                                              0, 0))
        for name in ("messages", "drops", "msg/s", "p50 us", "p99 us"):
            table.add_column(name, justify="right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


# -- 1: publish and subscribe --------------------------------------------------------------------


def publish(feed: demo_input.Feed, report: Report, progress: Progress) -> None:
    task = progress.add_task("flights published", total=demo_input.FLIGHTS)
    # the feed does not wait for slow subscribers, and its queue holds all of it: nothing is lost
    with (
        mq.Pub(bind="tcp://127.0.0.1:0", send_hwm=None, send_hwm_bytes=None) as pub,
        Peers() as peers,
    ):
        for library, *carriers in SUBSCRIBERS:
            peers.start(library, "subscriber", pub.endpoints[0].url, *carriers)
        pub.wait_subscribers(END, n=len(SUBSCRIBERS), timeout=PATIENCE)
        start = time.monotonic()
        for carrier, rows in feed.rows.items():
            topic = carrier.encode()
            for row in rows:
                pub.send_parts([topic, row])
            progress.advance(task, len(rows))
        pub.send_parts([END, b""])
        elapsed = time.monotonic() - start
        results = peers.results()
        stats = pub.stats()
    dropped = sum(stats.dropped.values()) + sum(
        sum(peer.dropped.values()) for peer in stats.peers.values()
    )
    report.row(
        "publisher", "mqcore", os.getpid(), stats.sent, dropped, demo_input.FLIGHTS / elapsed
    )
    for (_, *carriers), result in zip(SUBSCRIBERS, results, strict=True):
        want = {
            name: list(totals)
            for name, totals in feed.totals.items()
            if not carriers or name in carriers
        }
        report.compare(f"flights of subscriber {result['pid']}", result["totals"], want)
        got = sum(totals[0] for totals in result["totals"].values())
        report.row(
            f"subscriber, {' '.join(carriers) or 'all'}",
            result["library"],
            result["pid"],
            got,
            result["drops"],
            got / result["seconds"],
        )
    report.compare("messages that the publisher dropped", dropped, 0)


# -- 2: requests and replies, behind a queue -----------------------------------------------------


def ask(
    url: str,
    sums: list[tuple[int, int]],
    answers: list[int],
    trips: list[float],
    failures: list[BaseException],
) -> None:
    """One client; a thread."""
    try:
        with mq.Req(connect=url) as client:
            for a, b in sums:
                start = time.perf_counter()
                answers.append(int(client.request(b"%d %d" % (a, b), timeout=PATIENCE)))
                trips.append(time.perf_counter() - start)
    except BaseException as error:
        failures.append(error)


def serve(feed: demo_input.Feed, report: Report, progress: Progress) -> None:
    total = len(feed.sums) // CLIENTS * CLIENTS
    task = progress.add_task("sums asked for", total=total)
    shares = [feed.sums[i:total:CLIENTS] for i in range(CLIENTS)]
    answers: list[list[int]] = [[] for _ in range(CLIENTS)]
    trips: list[float] = []
    failures: list[BaseException] = []
    with tempfile.TemporaryDirectory() as folder, Peers() as peers:
        front = mq.Router(bind="tcp://127.0.0.1:0")
        back = mq.Dealer(bind=f"ipc://{folder}/back")
        urls = front.endpoints[0].url, back.endpoints[0].url
        for library in WORKERS:
            peers.start(library, "adder", urls[1])
        back.wait_peers(len(WORKERS), timeout=PATIENCE)
        with mq.device(front, back):
            start = time.monotonic()
            clients = [
                threading.Thread(target=ask, args=(urls[0], share, answers[i], trips, failures))
                for i, share in enumerate(shares)
            ]
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                clients[0].join(0.1) if clients[0].is_alive() else time.sleep(0.1)
                progress.update(task, completed=len(trips))
            elapsed = time.monotonic() - start
            progress.update(task, completed=len(trips))
            for process in peers.processes:
                process.terminate()
            results = peers.results()
    if failures:
        raise failures[0]
    for share, answer in zip(shares, answers, strict=True):
        report.compare("answers of the addition service", answer, [a + b for a, b in share])
    ordered = sorted(trips)
    report.row(
        f"{CLIENTS} clients, queue",
        "mqcore",
        os.getpid(),
        len(trips),
        0,
        total / elapsed,
        (ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]),
    )
    for result in results:
        report.row(
            "addition worker",
            result["library"],
            result["pid"],
            result["messages"],
            result["drops"],
            result["messages"] / elapsed,
        )
    report.compare("requests that the workers answered", sum(r["messages"] for r in results), total)


# -- 3: a pipeline -------------------------------------------------------------------------------


def pipeline(report: Report, progress: Progress) -> None:
    paragraphs = demo_input.read_text()
    task = progress.add_task("paragraphs counted", total=len(paragraphs))
    words: Counter[str] = Counter()
    by: Counter[int] = Counter()
    with (
        mq.Push(bind="tcp://127.0.0.1:0") as source,
        Peers() as peers,
        mq.Pull(bind="tcp://127.0.0.1:0", recv_timeout=PATIENCE) as sink,
    ):
        for library in WORKERS:
            peers.start(library, "counter", source.endpoints[0].url, sink.endpoints[0].url)
        source.wait_peers(len(WORKERS), timeout=PATIENCE)
        start = time.monotonic()
        for name, text in paragraphs:
            source.send_parts([name.encode(), text.encode()])
        for _ in paragraphs:
            pid, counted = sink.recv_parts()
            words.update(json.loads(counted))
            by[int(pid)] += 1
            progress.advance(task)
        elapsed = time.monotonic() - start
        for _ in WORKERS:  # round robin: one for each
            source.send_parts([b"", b""])
        results = peers.results()
        drops: Any = source.stats().dropped
    report.row(
        "source, sink",
        "mqcore",
        os.getpid(),
        len(paragraphs),
        sum(drops.values()),
        len(paragraphs) / elapsed,
    )
    for result in results:
        report.row(
            "word counter",
            result["library"],
            result["pid"],
            result["messages"],
            result["drops"],
            result["messages"] / elapsed,
        )
        report.compare(f"paragraphs from {result['pid']}", by[result["pid"]], result["messages"])
    report.compare("words counted", words, demo_input.expected_words())


def main() -> int:
    console = Console()
    report = Report()
    start = time.monotonic()
    with Progress(console=console) as progress:
        task = progress.add_task("reading the input", total=None)
        feed = demo_input.read_flights()
        progress.update(task, total=1, completed=1)
        publish(feed, report, progress)
        serve(feed, report, progress)
        pipeline(report, progress)
    report.show(console)
    for line in report.wrong:
        console.print(f"WRONG: {line}", style="bold red", markup=False)
    verdict = "differs from" if report.wrong else "equals"
    console.print(
        f"Everything that arrived {verdict} what plain Python computes from the input. "
        f"{time.monotonic() - start:.1f} s"
    )
    return 1 if report.wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
