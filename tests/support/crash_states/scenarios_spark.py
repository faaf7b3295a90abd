"""Spark's ledger and staged files, without Spark: a stream of two batches, and a job with a jobId.
Three journals each."""

from staged import KEYS, expected, publish, stage, stored

from crash_states.scenario import Scenario, sometimes

ROWS = 6


class Streaming(Scenario):
    """Two batches of a streaming query. Spark publishes a batch again unless it knows the end."""

    name = "spark stream"
    query = "3c5a7d8e-1d0b-4a38-9b02-b7a4ab3e6d57"
    batches = (0, b"first"), (1, b"second")

    def publish(self, where, batch, label):
        return publish(where, self.query, batch, stage(where, self.query, batch, label, ROWS))

    def run(self, where, mark, rng):
        for batch, label in self.batches:
            self.publish(where, batch, label)
            mark("did", batch)

    def check(self, where, marks):
        done = {value for kind, value in marks if kind == "did"}
        whole = expected(*((label, ROWS) for _, label in self.batches))
        sure = expected(*((label, ROWS) for batch, label in self.batches if batch in done))
        found = stored(where) if where.exists() else {}
        for key in KEYS:
            rows = found.get(key, [])
            assert rows == whole[key][:len(rows)], f"{key} has {rows}"
            assert len(rows) >= len(sure[key]), f"{key} has {len(rows)} of {len(sure[key])} rows"
        for batch, label in self.batches:
            if batch in done and sometimes(marks, 2):
                continue        # Spark knows of its end
            fresh = self.publish(where, batch, label)
            assert not (fresh and batch in done), f"batch {batch} is published twice"
        assert stored(where) == whole, "what is stored is not each batch once"


class Naming(Streaming):
    """A batch job with a jobId that is run again."""

    name = "spark job"
    query = "named-nightly"
    batches = ((0, b"all"),)


SPARK = Streaming, Naming
