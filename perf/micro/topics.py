"""Matching a message against all topics subscribed: random ones of 25 bytes, like many.py's.

python perf/micro/topics.py -o new.json; python -m pyperf compare_to old.json new.json
"""

import functools
import random

import pyperf
from mqcore.protocols.routing.topic_index import TopicIndex

TOPIC, BODY = 25, 64
MESSAGES = 1000


@functools.cache
def prepared(n: int) -> tuple[TopicIndex, list[bytes], list[bytes]]:
    """An index of n topics, messages that match one of them, and some that match none."""
    dice, index = random.Random(n), TopicIndex()
    topics = [dice.randbytes(TOPIC) for _ in range(n)]
    index.time_put(topics)
    some = [dice.choice(topics) + dice.randbytes(BODY - TOPIC) for _ in range(MESSAGES)]
    return index, some, [dice.randbytes(BODY) for _ in range(MESSAGES)]


def match(loops: int, n: int, hits: bool) -> float:
    index, some, none = prepared(n)
    messages = some if hits else none
    rounds = -(-loops // MESSAGES)
    return sum(index.time_match(messages) for _ in range(rounds)) / (rounds * MESSAGES) * loops


if __name__ == "__main__":
    runner = pyperf.Runner(processes=3, values=3, warmups=1)
    for n, name in ((10, "10"), (10_000, "10 k"), (1_000_000, "1 M")):
        runner.bench_time_func(f"match one of {name} topics", match, n, True)
        runner.bench_time_func(f"match none of {name} topics", match, n, False)
