"""What the console takes with many sockets and peers, and how long its page takes to appear.

    python perf/console.py                      1,000 sockets, 10,000 peers, with Chromium if there
    python perf/console.py --sockets 100 --peers 1000 --processes 2

Processes with sockets over inproc are monitored. The console runs in a process of its own, and a
client asks it as its page does: once a second for each view. Printed, as JSON:

    refresh     seconds between two looks at the sockets, and at the peers: median and largest
    answer      seconds until an answer, by view: median and largest
    memory      MiB of the console's process, the most at any time
    paint       seconds until the page's first paint, with the files' bytes (needs Chromium)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mqcore as mq

PATIENCE = 120.0
VIEWS = ("sockets", "peers", "map", "events")


def program(sockets: str, peers: str) -> None:
    """So many sockets, with so many peers together, each at both its ends, until the input ends."""
    publishers = int(peers) // 2 // (int(sockets) // 2) or 1
    with mq.Context(monitor=True) as context:
        made: list[mq.Socket] = []
        binders = int(sockets) // 2
        for number in range(binders):
            made.append(mq.Router(bind=f"inproc://{number}", context=context))
        for number in range(int(sockets) - binders):
            dealer = mq.Dealer(context=context)
            for i in range(publishers):
                dealer.connect(f"inproc://{(number + i) % binders}")
            made.append(dealer)
        print("ready", flush=True)
        for _ in sys.stdin:
            break
        for sock in made:
            sock.close(0)


def console() -> None:
    """The console: prints the addresses of its page and of its socket; its memory at the end."""
    from mqcore.console import Console

    with Console() as served:
        print(served.url, served._rep.endpoints[0].url, flush=True)
        sys.stdin.read()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


def spawn(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *map(str, words)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "MQCORE_MONITOR": "0"})


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "a process has ended early"
    return line


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 4), "largest": round(max(values), 4)}


def ask(url: str, seconds: float) -> dict[str, object]:
    """Ask for all views once a second, as pages do, and note when the looks change."""
    took: dict[str, list[float]] = {view: [] for view in VIEWS}
    clocks: dict[str, list[float]] = {"sockets": [], "peers": []}
    found: dict[str, int] = {}
    with mq.Context(monitor=False) as context, mq.Req(connect=url, context=context,
                                                      recv_timeout=PATIENCE) as req:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            for view in VIEWS:
                before = time.monotonic()
                answer = json.loads(req.request(json.dumps({"op": view}).encode()))
                took[view].append(time.monotonic() - before)
                totals = answer["totals"]
                for name, clock in (("sockets", totals["at"]), ("peers", answer.get("at"))):
                    if clock and clock not in clocks[name][-1:]:
                        clocks[name].append(clock)
                found = {"sockets": totals["sockets"], "peers": totals["peers"]}
            time.sleep(max(0.0, began + 0.25 - time.monotonic()))
    gaps = {name: [new - old for old, new in zip(all_, all_[1:], strict=False)]
            for name, all_ in clocks.items()}
    return {"seen": found, "refresh": {name: spread(gap) for name, gap in gaps.items() if gap},
            "answer": {view: spread(times[1:]) for view, times in took.items() if times[1:]}}


def paint(url: str) -> dict[str, object] | None:
    """The page's first paint, as Chromium measures it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
    from browser import CHROMIUM, Browser

    if CHROMIUM is None:
        return None
    with tempfile.TemporaryDirectory() as folder, \
            Browser(Path(folder), hosts=("127.0.0.1",)) as browser:
        complaints = browser.open(url)
        size = "['resource', 'navigation'].flatMap((kind) => performance.getEntriesByType(kind))" \
               ".reduce((n, entry) => n + entry.decodedBodySize, 0)"
        first = "new Promise((done) => new PerformanceObserver((list) => done(" \
                "list.getEntries()[0].startTime)).observe({type: 'paint', buffered: true}))"
        return {"first": round(browser.run(first) / 1000, 4), "bytes": browser.run(size),
                "complaints": complaints}


def main() -> None:
    if sys.argv[1:2] == ["program"]:
        return program(*sys.argv[2:])
    if sys.argv[1:2] == ["console"]:
        return console()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--peers", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mq") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        programs = [spawn("program", given.sockets // given.processes,
                          given.peers // given.processes) for _ in range(given.processes)]
        served = None
        try:
            for process in programs:
                said(process)
            served = spawn("console")
            page, url = said(served).split()
            result = {"paint": paint(page), **ask(url, given.seconds)}
            served.stdin.close()    # type: ignore[union-attr]
            result["memory"] = round(float(said(served)), 1)
        finally:
            for process in [*programs, *([served] if served else [])]:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
