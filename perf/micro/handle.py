"""Making and closing a message's handle, as a send does with bytes that it copies.

python perf/micro/handle.py -o new.json; python -m pyperf compare_to old.json new.json
"""

import pyperf
from mqcore.testing.native.base_bench import BasePool
from mqcore.testing.native.native_bench import handles


def make_and_close(loops: int, size: int) -> float:
    return handles(BasePool(), bytes(size), loops)


if __name__ == "__main__":
    runner = pyperf.Runner(processes=5, values=3, warmups=1)
    for size, name in ((16, "16 B"), (100, "100 B"), (1 << 10, "1 KiB"), (64 << 10, "64 KiB")):
        runner.bench_time_func(f"handle {name}", make_and_close, size)
