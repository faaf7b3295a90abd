"""Round trips as a pyperf suite: calibrated, warmed up, compared with `pyperf compare_to`.

    bench_latency.py --lib mqcore --transport tcp --size 16 -o mqcore.json

Both ends are processes of their own, pinned one a core; a value is the median of its round trips.
"""

import suite

if __name__ == "__main__":
    suite.main("lat")
