"""What one message costs in the ZMTP codec alone, without sockets and threads.

python perf/micro/wire.py -o new.json; python -m pyperf compare_to old.json new.json
"""

import pyperf
from mqcore.testing.native.probe import Probe

GREETING = bytes.fromhex("ff00000000000000017f") + b"\3\1NULL" + bytes(48) + b"\x04\x06\x05READY"
WAITING = 4 << 20  # bytes of messages that wait for one round, at most
ENCODE, DECODE = 0, 1


def codec(loops: int, size: int, side: int) -> float:
    """Seconds for `loops` messages that wait together, as they do under load."""
    probe = Probe()
    probe.start()
    probe.feed(GREETING)
    count = max(8, min(1000, WAITING // size))
    rounds = -(-loops // count)
    return probe.measure(bytes(size), count, rounds)[side] * 1e-9 * loops


if __name__ == "__main__":
    runner = pyperf.Runner(processes=5, values=3, warmups=1)
    for size, name in ((16, "16 B"), (100, "100 B"), (1 << 10, "1 KiB"), (64 << 10, "64 KiB")):
        runner.bench_time_func(f"encode {name}", codec, size, ENCODE)
        runner.bench_time_func(f"decode {name}", codec, size, DECODE)
