"""Streams, jobs and jobs with an id in one path, which crash and fail anywhere while others go on.
In the end each batch is there once, of one attempt, and each job is there whole, or not at all."""

import contextlib
import random
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from staged import Crash, entries, publish, stage_to, values  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.spark import entries as book  # noqa: E402
from mqcore.spark import ledger  # noqa: E402
from mqcore.spark.sweep import discard  # noqa: E402

TOPICS = "a", "b", "c", "d"
STEPS = 60
BEFORE = "forget", "keep_named"     # a driver that is killed behind them has told nobody
PLACES = {"_store": 2, "append_batch": 5, "_append": 3, "_done": 1, "sweep_abandoned": 1,
          **dict.fromkeys(BEFORE, 1)}       # and how often a publication calls them


class Failing:
    """One of PLACES crashes or fails, before it does anything or when it has done it."""

    def __init__(self, monkeypatch, rng):
        self.patch, self.rng = monkeypatch, rng

    @contextlib.contextmanager
    def __call__(self):
        name = self.rng.choice([*PLACES, "append_batch"])
        real, countdown = getattr(ledger, name), [self.rng.randrange(PLACES[name])]
        error = OSError(28, "No space left on device")
        if name != "sweep_abandoned" and self.rng.random() < 0.5:
            error = Crash()
        late = name not in BEFORE and self.rng.random() < 0.5

        def failing(*args):
            countdown[0] -= 1
            if countdown[0] == -1 and not late:
                raise error
            result = real(*args)
            if countdown[0] == -1:
                raise error
            return result

        with self.patch.context() as patch:
            if self.rng.random() < 0.8:
                patch.setattr(ledger, name, failing)
            yield


class Work:
    """A stream's next batch, or a job. `tries` are the labels of its attempts."""

    def __init__(self, name, rng, kind):
        self.name, self.rng, self.kind = name, rng, kind
        self.batch, self.history = 0, []
        self.begin()

    def begin(self):
        self.topics = sorted(self.rng.sample(TOPICS, self.rng.randint(1, 3)))
        self.tries, self.number, self.done = [], 0, False

    def attempt(self, where):
        label = f"{self.name}.{self.batch}"
        if self.kind != "job":      # what is staged again may be something else
            label += f".{self.number}"
        self.number += 1
        self.tries.append(label)
        query = {"stream": self.name, "named": book.name_of(self.name),
                 "job": f"job-{self.name}-{self.number}"}[self.kind]
        files = stage_to(where, query, label.encode(), 3, self.topics, self.batch)
        try:
            publish(where, query, self.batch, files)
        except Crash:
            return
        except Exception:
            discard(str(where), query, self.batch, files)
            return
        self.done = True

    def there(self, found):
        """How often each row is stored, by label; the labels that are not whole, or more."""
        rows = {label: [found[topic][f"{label} {i}".encode()]
                        for topic in self.topics for i in range(3)]
                for label in dict.fromkeys(self.tries)}
        assert all(set(counts) in ({0}, {1}) for counts in rows.values()), (self.name, rows)
        return sum(counts[0] for counts in rows.values())


@pytest.mark.parametrize("run", range(6))
def test_everything_once(tmp_path, monkeypatch, rng, run):
    rng = random.Random(f"{rng.random()} {run}")
    failing = Failing(monkeypatch, rng)
    works = [Work(name, rng, "stream") for name in ("s1", "s2")]
    finished = []
    for step in range(STEPS):
        if rng.random() < 0.3:
            works.append(Work(f"w{step}", rng, rng.choice(["job", "named"])))
        work = rng.choice([work for work in works if not work.done])
        busy = journal.open(tmp_path, "a", topic=rng.choice(TOPICS)) if rng.random() < 0.1 else None
        with failing(), busy or contextlib.nullcontext(), monkeypatch.context() as patch:
            patch.setattr(ledger, "patient", lambda timeout, kind, call: call())
            work.attempt(tmp_path)
        if work.done and work.kind == "stream":
            finished.append((list(work.tries), list(work.topics), work))
            check_batch(tmp_path, finished[-1])
            work.batch += 1
            work.begin()
    for work in works:
        for _ in range(2 if work.kind == "stream" or rng.random() < 0.5 else 0):
            if work.tries and not work.done:
                work.attempt(tmp_path)
    for topic in TOPICS:        # completes what nobody runs again
        publish(tmp_path, "last", TOPICS.index(topic),
                stage_to(tmp_path, "last", b"last", 1, [topic], TOPICS.index(topic)))
    found = {topic: Counter(values(tmp_path, topic)) for topic in TOPICS}
    for work in works:
        count = work.there(found)
        assert count == 1 if work.done else count <= 1, (work.name, work.tries, work.done)
    for tries, topics, work in finished:
        rows = [sum(found[topic][f"{label} {i}".encode()] for label in tries)
                for topic in topics for i in range(3)]
        assert set(rows) == {1}, (work.name, tries, rows)
    assert not [name for name in entries(tmp_path) if name.startswith(book.NAMED)]


def check_batch(where, one):
    tries, topics, _ = one
    for topic in topics:
        rows = Counter(values(where, topic))
        assert sum(rows[f"{label} {i}".encode()] for label in tries for i in range(3)) == 3
