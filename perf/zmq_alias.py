"""mqcore.zmq beside our own calls and beside pyzmq, in alternating rounds.

    zmq_alias.py [--what pairs|calls] [--row TEXT] [--rounds N] [--seconds S] [--name NAME]
                 [--even-if-busy]

`pairs`: two ends, as in versus.py. The alias may cost at most 15 % more time than our own calls,
and must stay as far ahead of pyzmq as those are. All have libzmq's high-water marks of 1000
messages. `calls`: one thread that uses sockets which need no other thread (inproc), so the figure
is that of the call alone. The alias must not be slower than pyzmq. Both ratios are computed per
round.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import statistics
import sys
import time
from collections.abc import Callable

import report
import versus
from pairs import Case, machine, quiet_or_exit
from rows import Row, run_rows

OURS = "mqcore+marks"  # libzmq's, which the alias has by default, too
LIBRARIES = [OURS, "alias", "pyzmq"]
MOST = 1.15  # times our own calls' time
BODY, PARTS, LARGE = b"0123456789abcdef", [b"01234567", b"89abcdef"], bytes(100_000)
BURST = 200  # messages sent before they are received
PAIRS = [
    Case(kind, transport, 16, calls)._replace(place="free" if kind == "thr" else "idle")
    for kind in ("thr", "lat")
    for transport in ("tcp", "inproc")
    for calls in ("plain", "parts")
] + [Case(kind, "tcp", 16, "asyncio", place) for kind, place in (("thr", "free"), ("lat", "idle"))]
HEAD = (
    "| what | mqcore | alias | pyzmq | alias to mqcore | lowest to highest | at most "
    "| mqcore to pyzmq | alias to pyzmq |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


# -- calls: each makes a function ------------------------------------------------------------------


class Bench:
    """A candidate's sockets in one thread."""

    def __init__(self, library: str):
        self.ours = library == OURS
        self.z = importlib.import_module(
            {OURS: "mqcore", "alias": "mqcore.zmq", "pyzmq": "zmq"}[library])
        self.context = self.z.Context()
        self.sockets = []

    def pair(self, a: str, b: str, name: str = "a"):
        made = []
        for kind, verb in ((a, "bind"), (b, "connect")):
            if self.ours:
                s = self.z.socket(kind.lower(), context=self.context)
            else:
                s = self.context.socket(getattr(self.z, kind))
                s.linger = 0
            self.sockets.append(s)
            getattr(s, verb)(f"inproc://{name}")
            made.append(s)
        return made

    def close(self) -> None:
        for s in self.sockets:
            s.close(0)
        (self.context.close if self.ours else self.context.term)()


def timed(body: Callable[[], object], count: int) -> float:
    """ns a call."""
    turns, clock = range(count), time.perf_counter_ns
    before = clock()
    for _ in turns:
        body()
    return (clock() - before) / count


def one_side(bench: Bench, receives: bool, parts: bool, seconds: float) -> float:
    """send() or recv() alone: the other side's calls are made between the clock's readings."""
    pull, push = bench.pair("PULL", "PUSH")
    names = ("recv_parts", "send_parts") if bench.ours else ("recv_multipart", "send_multipart")
    recv, send = (getattr(pull, names[0]), getattr(push, names[1])) if parts else (
        pull.recv, push.send)
    body = PARTS if parts else BODY
    give, times, end = functools.partial(send, body), [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        sent = timed(give, BURST)
        taken = timed(recv, BURST)
        times.append(taken if receives else sent)
    return statistics.median(times)


def repeated(make: Callable[[Bench], Callable[[], object]], bench: Bench, seconds: float) -> float:
    body, times, end = make(bench), [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times.append(timed(body, BURST))
    return statistics.median(times)


def there_and_back(bench: Bench, body: object, sending: str = "send", receiving: str = "recv",
                   **how: object) -> Callable[[], object]:
    pull, push = bench.pair("PULL", "PUSH")
    send, recv = getattr(push, sending), getattr(pull, receiving)

    def call() -> None:
        send(body, **how)
        recv(**how)

    return call


def again(bench: Bench) -> Callable[[], object]:
    pull, _ = bench.pair("PULL", "PUSH")
    recv, flag, error = pull.recv, bench.z.NOBLOCK, bench.z.Again

    def call() -> None:
        try:
            recv(flag)
        except error:
            pass

    return call


def polled(bench: Bench, sockets: int, ready: bool) -> Callable[[], object]:
    poller = bench.z.Poller()
    for i in range(sockets):
        pull, push = bench.pair("PULL", "PUSH", f"a{i}")
        poller.register(pull, bench.z.POLLIN)
    if ready:
        push.send(b"")
    return functools.partial(poller.poll, 1000 if ready else 0)


def pieces(bench: Bench) -> Callable[[], object]:
    pull, push = bench.pair("PULL", "PUSH")
    more = bench.z.SNDMORE

    def call() -> None:
        push.send(BODY, more)
        push.send(BODY)
        pull.recv()
        pull.recv()

    return call


def request(bench: Bench, **how: object) -> Callable[[], object]:
    rep, req = bench.pair("REP", "REQ")

    def call() -> None:
        req.send(BODY)
        rep.send(rep.recv(**how), **how)
        req.recv(**how)

    return call


def forwarded(bench: Bench) -> Callable[[], object]:
    """A proxy's work: frames as they came."""
    router, dealer = bench.pair("ROUTER", "DEALER")

    def call() -> None:
        dealer.send(BODY)
        router.send_multipart(router.recv_multipart(copy=False), copy=False)
        dealer.recv()

    return call


def into(bench: Bench) -> Callable[[], object]:
    pull, push = bench.pair("PULL", "PUSH")
    room = bytearray(64)

    def call() -> None:
        push.send(BODY)
        pull.recv_into(room)

    return call


def option(bench: Bench, name: str) -> Callable[[], object]:
    pull, _ = bench.pair("PULL", "PUSH")
    return functools.partial(pull.getsockopt, getattr(bench.z, name))


def in_a_loop(bench: Bench, trips: bool, seconds: float) -> float:
    """ns of an asyncio send and receive: `trips`, each receive waits; else BURST are sent first."""
    module = importlib.import_module(f"{bench.z.__name__}.asyncio")

    async def run() -> float:
        context = module.Context()
        pull, push = context.socket(bench.z.PULL), context.socket(bench.z.PUSH)
        pull.linger = push.linger = 0
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        times, end, clock = [], time.perf_counter() + seconds, time.perf_counter_ns
        while not times or time.perf_counter() < end:
            before = clock()
            for _ in range(BURST):
                if trips:
                    waits = pull.recv()
                    await push.send(BODY)
                    await waits
                else:
                    await push.send(BODY)
            for _ in range(0 if trips else BURST):
                await pull.recv()
            times.append((clock() - before) / BURST)
        pull.close()
        push.close()
        context.term()
        return statistics.median(times)

    return asyncio.run(run())


CALLS: dict[str, Callable[[Bench, float], float]] = {
    "recv(NOBLOCK), nothing there": functools.partial(repeated, again),
    "getsockopt(EVENTS)": functools.partial(repeated, functools.partial(option, name="EVENTS")),
    "getsockopt(RCVHWM)": functools.partial(repeated, functools.partial(option, name="RCVHWM")),
    **{f"poll(), {n} socket{'s' * (n > 1)}, {'one' if ready else 'none'} ready": functools.partial(
        repeated, functools.partial(polled, sockets=n, ready=ready))
       for n in (1, 10) for ready in (False, True)},
    **{name: functools.partial(repeated, functools.partial(there_and_back, body=body, **how))
       for name, body, how in (
           ("send + recv, copy=False", BODY, {"copy": False}),
           ("send + recv, copy=False, 100 kB", LARGE, {"copy": False}),
           ("send + recv, 100 kB", LARGE, {}),
           ("send + recv, bytearray", bytearray(BODY), {}),
           ("send + recv, multipart, copy=False", PARTS,
            {"sending": "send_multipart", "receiving": "recv_multipart", "copy": False}),
           ("send + recv, string", "text", {"sending": "send_string", "receiving": "recv_string"}),
       )},
    "two parts with SNDMORE": functools.partial(repeated, pieces),
    "send + recv_into": functools.partial(repeated, into),
    "request, REP in the same thread": functools.partial(repeated, request),
    "the same, copy=False": functools.partial(repeated, functools.partial(request, copy=False)),
    "forwarded, copy=False": functools.partial(repeated, forwarded),
    "asyncio, send + recv, tcp": functools.partial(in_a_loop, trips=False),
    "asyncio, recv waits, then send, tcp": functools.partial(in_a_loop, trips=True),
}  # fmt: skip
#: these our own calls have, too
OWN = {
    f"{name}, inproc": functools.partial(one_side, receives=receives, parts=parts)
    for name, receives, parts in (("send", False, False), ("recv", True, False),
                                  ("send_multipart", False, True), ("recv_multipart", True, True))
}  # fmt: skip


def measured(body: Callable[[Bench, float], float], library: str, seconds: float) -> dict:
    bench = Bench(library)
    try:
        return {"value": body(bench, seconds=seconds)}
    finally:
        bench.close()


def rows(quick: bool = False) -> list[Row]:
    return [
        Row(name, "ns", True, functools.partial(measured, body), takes.__contains__, 9, "calls")
        for some, takes in ((OWN, LIBRARIES), (CALLS, LIBRARIES[1:]))
        for name, body in some.items()
    ]


# -- the table -------------------------------------------------------------------------------------


def ratios(result: dict, one: str, other: str) -> list[float]:
    """Times of the one to those of the other (the inverse, of rates), round by round."""
    a, b = ([run.get("value") for run in result["runs"].get(name, ())] for name in (one, other))
    if not a or not b or None in (*a, *b):
        return []
    less = result.get("less_is_better", result.get("kind") == "lat")
    return sorted(x / y if less else y / x for x, y in zip(a, b, strict=True))


def line(result: dict) -> str:
    def cell(name: str) -> str:
        s = result["summary"].get(name)
        if s is None or "error" in s:
            return "" if s is None else f"failed: {s['error']}"
        kind = result.get("kind")
        return report.shown(kind, s["median"]) if kind else f"{report.amount(s['median'])} ns"

    def middle(some: list[float]) -> str:
        return f"{statistics.median(some):.2f}" if some else ""

    ours = ratios(result, "alias", OURS)
    cells = [result["name"], *map(cell, LIBRARIES), middle(ours),
             f"{ours[0]:.2f} to {ours[-1]:.2f}" if ours else "",
             f"{MOST}" if ours else "", middle(ratios(result, OURS, "pyzmq")),
             middle(ratios(result, "alias", "pyzmq"))]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table(results: list[dict]) -> str:
    """Ratios of times, for rates too: below 1 is better."""
    return "\n".join([HEAD, *map(line, results)])


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    versus.add_arguments(parser)
    parser.add_argument("--what", action="append", choices=("pairs", "calls"))
    parser.add_argument("--row", action="append", metavar="TEXT", help="rows with it in their name")
    parser.add_argument("--name", default="zmq-alias", help="of the files")
    options = parser.parse_args(args)
    options.lib = LIBRARIES
    about = {**machine(), **quiet_or_exit(options.even_if_busy), "rounds": options.rounds}

    def chosen(some: list) -> list:
        return [one for one in some if not options.row
                or any(text in one.name for text in options.row)]

    what = options.what or ("pairs", "calls")
    results = {
        "pairs": versus.run_cases(chosen(PAIRS), options) if "pairs" in what else [],
        "calls": run_rows(chosen(rows()), options) if "calls" in what else [],
    }
    print(report.write(options.folder, options.name, about, results,
                       dict.fromkeys(results, table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
