"""python -m mqcore.zmq.log tcp://host:5558: print what a PUBHandler publishes, until Ctrl-C."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence

from mqcore.zmq.constants import SocketType
from mqcore.zmq.context import Context

#: SGR, ECMA-48 section 8.3.117
COLORS = {"DEBUG": 36, "INFO": 32, "WARNING": 33, "ERROR": 31, "CRITICAL": 35}


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    """pyzmq's arguments."""
    parser = argparse.ArgumentParser("python -m zmq.log", description="Print what a PUBHandler "
                                     "publishes, until Ctrl-C.")
    add = parser.add_argument
    add("zmq_pub_url", help="the publisher's address")
    add("-t", "--topic", default="", help="only topics that begin so")
    add("--timestamp", action="store_true", help="the local time in front")
    add("--separator", default=" | ", help="between topic and text")
    add("--dateformat", default="%Y-%d-%m %H:%M", help="of --timestamp, as in strftime(3)")
    add("--align", action="store_true", help="words of topics as wide as the widest so far")
    add("--color", action="store_true", help="by level")
    return parser.parse_args(given)


def lines(messages: Iterator[list[bytes]], wanted: argparse.Namespace) -> Iterator[str]:
    """A line for each message; bytes that are no text are shown as such."""
    widths: list[int] = []
    for first, *rest in messages:
        topic = first.decode(errors="backslashreplace")
        text = b"".join(rest).decode(errors="backslashreplace").strip()
        words = topic.split(".")
        if wanted.align:
            widths = [max(pair) for pair in itertools.zip_longest(
                widths, map(len, words), fillvalue=0)]
            blank = [""] * (len(widths) - len(words))
            topic = ".".join(map(str.ljust, words + blank, widths))
        line = f"{topic}{wanted.separator}{text}"
        if wanted.timestamp:
            line = f"{time.strftime(wanted.dateformat)} {line}"
        color = next((COLORS[word] for word in words if word in COLORS), None)
        yield f"\x1b[{color}m{line}\x1b[0m" if wanted.color and color else line


def main(given: Sequence[str] | None = None) -> None:
    """Until Ctrl-C."""
    wanted = parse(given)
    with Context() as context, context.socket(SocketType.SUB) as sub:
        sub.subscribe(wanted.topic)
        sub.connect(wanted.zmq_pub_url)
        try:
            for line in lines(iter(sub.recv_multipart, None), wanted):
                print(line, flush=True)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
