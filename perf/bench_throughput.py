"""One-way rates as a pyperf suite: seconds per message, as the receiver sees them.

    bench_throughput.py --lib mqcore --transport tcp --size 1024 -o mqcore.json

Both ends are processes of their own; pyperf's worker only starts them.
"""

import suite

if __name__ == "__main__":
    suite.main("thr")
