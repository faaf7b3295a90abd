"""One message from thread to thread through a ypipe, without Python: the time of a hop.

python perf/micro/ypipe.py -o new.json; python -m pyperf compare_to old.json new.json
"""

import pyperf
from mqcore.testing.native.pipe_stress import stress

LEAST = 1_000_000  # messages, so that starting two threads does not show


def hop(loops: int, batch: int) -> float:
    count = max(loops, LEAST)
    found = stress(count, batch=batch, plain=True)
    if found["received"] != count or found["wrong"]:
        raise RuntimeError(f"the pipe lost something: {found}")
    return found["seconds"] / count * loops


if __name__ == "__main__":
    runner = pyperf.Runner(processes=5, values=3, warmups=1)
    for batch in (1, 16, 256):
        runner.bench_time_func(f"ypipe hop, a flush every {batch}", hop, batch)
