"""What `make perf` and `make perf-quick` run: the side-by-side table in the regimes that matter."""

from __future__ import annotations

import argparse

import versus

FULL = (
    [
        "--name",
        "apart-awake",
        "--kind",
        "lat",
        "--transport",
        "tcp",
        "--transport",
        "ipc",
        "--regime",
        "awake",
    ],
    ["--name", "apart-idle", "--transport", "tcp", "--transport", "ipc"],
    ["--name", "together", "--kind", "lat", "--place", "together"],
    ["--name", "large", "--kind", "thr", "--size", "65536", "--size", "1048576"],
)
QUICK = (["--name", "quick", "--rounds", "3", "--scale", "0.2"],)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute instead of some ten")
    for args in QUICK if parser.parse_args().quick else FULL:
        versus.main(args)
        print()


if __name__ == "__main__":
    main()
