"""The part that both pyperf suites share: arguments, and a measurement as a time function."""

from __future__ import annotations

import argparse

import pyperf
from candidates import known
from libraries import LIBRARIES
from pairs import Case, run_pair

LEAST = {"lat": 500, "thr": 20_000}  # messages in a run, so that starting it does not show


def forward(command: list[str], options: argparse.Namespace) -> None:
    """Hand our own arguments on to pyperf's worker processes."""
    command += ["--lib", options.lib, "--transport", options.transport, "--size", str(options.size)]
    command += ["--calls", options.calls]


def main(kind: str) -> None:
    runner = pyperf.Runner(add_cmdline_args=forward, processes=5, values=3, warmups=1)
    add = runner.argparser.add_argument
    add("--lib", type=known, default="mqcore")
    add("--transport", choices=("tcp", "ipc", "shm", "inproc"), default="tcp")
    add("--size", type=int, default=16)
    add("--calls", choices=LIBRARIES["mqcore"].calls, default="plain")
    options = runner.parse_args()
    case = Case(kind, options.transport, options.size, options.calls)

    def seconds(loops: int) -> float:
        """Of `loops` messages or round trips."""
        value = run_pair(options.lib, case, max(loops, LEAST[kind]))["value"]
        return loops * (value if kind == "lat" else 1 / value)

    runner.bench_time_func(f"{kind} {options.lib} {options.transport} {options.size} B", seconds)
