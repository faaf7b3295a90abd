"""One end of a measurement of mqcore without Python between the messages.

    native_ends.py mqcore ROLE --url URL --size N --count N [--calls native|many] [--cpu N]

Lines, roles and figures are those of ends.py; the loops are those of tests/native/native_bench.pyx.
One way, `system_calls` is how often this end's engine read or wrote, by its own count.
"""

from __future__ import annotations

import json
import os

from ends import End, read_arguments, say
from libraries import Mqcore, die_with_parent
from mqcore.testing.native.native_bench import Loops
from timing import WARM_TRIPS, bodies, percentiles, warm_messages


def traffic(s) -> int:
    """System calls of the engines so far."""
    return sum(peer.writes + peer.reads for peer in s.stats().peers.values())


class NativeEnd(End):
    def one_way(self, s, loop) -> dict:
        many = self.o.calls == "many"
        loop(warm_messages(self.o.count), many)
        before = traffic(s)
        self.timer.start()
        loop(self.o.count, many)
        return self.finish(s, system_calls=lambda: traffic(s) - before)

    def finish(self, s, system_calls=None, **more) -> dict:
        self.timer.stop()
        self.over()
        if system_calls is not None:
            more["system_calls"] = system_calls()
        result = self.timer.result(self.o.count, **more)
        self.lib.close(s)
        return result

    def sink(self) -> dict:
        s = self.opened("pull")
        return self.one_way(s, Loops(s, []).take)

    def source(self) -> dict:
        s = self.lib.connect("push", self.o.url)
        return self.one_way(s, Loops(s, bodies(self.o.size)).give)

    def echo(self) -> dict:
        s = self.opened("rep")
        loops = Loops(s, [])
        loops.echo(WARM_TRIPS)
        self.timer.start()
        loops.echo(self.o.count)
        return self.finish(s)

    def ask(self) -> dict:
        s = self.lib.connect("req", self.o.url)
        loops = Loops(s, bodies(self.o.size))
        loops.ask(WARM_TRIPS)
        self.timer.start()
        return self.finish(s, **percentiles(loops.ask(self.o.count)))


def main() -> None:
    options = read_arguments()
    die_with_parent()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    end = NativeEnd(Mqcore(options.size), options)
    say(json.dumps(getattr(end, options.role)()))
    os._exit(0)


if __name__ == "__main__":
    main()
