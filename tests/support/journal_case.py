"""What the journal's tests share: messages that say who they are, and what a journal holds."""

import numpy as np

from mqcore import journal


def numbered(first, n, rng):
    """n messages of random sizes, each beginning with its number."""
    return [b"%08d" % i + bytes(rng.choice((0, 1, 7, 60, 700, 5000)) * [i % 251])
            for i in range(first, first + n)]


def arrays(messages):
    ends = np.cumsum([0, *map(len, messages)])
    return np.frombuffer(b"".join(messages), np.uint8), ends


def contents(where, **kw):
    with journal.open(where, **kw) as reader:
        return [message for records in reader.batches() for message in records.to_list()]


def segment_files(where, topic="default", partition=0):
    return sorted((where / topic / str(partition)).glob("*.mqj"))


def from_json(message):
    """A message of vectors.json as the reference takes it."""
    found = {"time": message["time"], "value": bytes.fromhex(message["value"])}
    if "key" in message:
        found["key"] = bytes.fromhex(message["key"])
    if "headers" in message:
        found["headers"] = [(name, bytes.fromhex(value)) for name, value in message["headers"]]
    if "stamp" in message:
        found["stamp"] = tuple(message["stamp"])
    return found
