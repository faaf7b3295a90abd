"""The part that both pyperf suites share: arguments, and a measurement as a time function."""

from __future__ import annotations

import argparse

import pyperf
from pairs import Case, cores, run_pair

LEAST = {"lat": 500, "thr": 20_000}  # messages in a run, so that starting it does not show


def forward(command: list[str], options: argparse.Namespace) -> None:
    """Hand our own arguments on to pyperf's worker processes."""
    command += ["--lib", options.lib, "--transport", options.transport, "--size", str(options.size)]


def main(kind: str) -> None:
    runner = pyperf.Runner(add_cmdline_args=forward, processes=5, values=3, warmups=1)
    runner.argparser.add_argument("--lib", choices=("mqcore", "pyzmq", "raw"), default="mqcore")
    runner.argparser.add_argument("--transport", choices=("tcp", "ipc"), default="tcp")
    runner.argparser.add_argument("--size", type=int, default=16)
    options = runner.parse_args()
    have = cores()

    def seconds(loops: int) -> float:
        """Of `loops` messages or round trips."""
        case = Case(kind, options.transport, options.size, max(loops, LEAST[kind]))
        value = run_pair(options.lib, case, (have[0], have[-1]))["value"]
        return loops * (value if kind == "lat" else 1 / value)

    runner.bench_time_func(f"{kind} {options.lib} {options.transport} {options.size} B", seconds)
