"""The store of a queue server: jobs that are put, acknowledged, and moved to newer segments."""

from crash_states.scenario import Scenario
from mqcore.journal import QueueLimits, QueueOptions
from mqcore.journal.queues.store import Store

NAME = "work"


def opened(where):
    return Store(str(where), "never", QueueOptions(), QueueLimits(), segment_bytes=4096)


def body_of(number):
    return b"%08d" % number + bytes(number * 37 % 900)


def jobs(store):
    found = [bytes(store.load(entry)) for entry in store.book.jobs.values()]
    numbers = [int(body[:8]) for body in found]
    assert found == [body_of(number) for number in numbers]
    return numbers


class Queueing(Scenario):
    """Each change is durable before it is acknowledged."""

    name = "queue"

    def put(self, store, number, mark):
        mark("putting", number)
        store.book.put(NAME, [body_of(number)], 0.0)
        store.settle(always=True)
        mark("put", number)

    def run(self, where, mark, rng):
        store = opened(where)
        self.put(store, 0, mark)                # an old one, which is moved
        for number in range(1, 14):
            self.put(store, number, mark)
            if rng.random() < 0.8:
                taken = store.book.take(NAME, 2, 1 << 20, "me", 0.0)
                entry = taken[-1]
                done = int(store.load(entry)[:8])
                mark("taking", done)
                store.book.ack([entry.id], [entry.attempts])
                store.settle(always=True)
                mark("took", done)
            store.tidy()
        store.close()

    def again(self, where, mark, rng):
        store = opened(where)
        for number in range(20, 24):
            self.put(store, number, mark)
            store.tidy()
        store.close()

    def check(self, where, marks):
        of = {kind: {value for what, value in marks if what == kind}
              for kind in ("putting", "put", "taking", "took")}
        for _ in range(2):
            store = opened(where)
            try:
                found = jobs(store)
            finally:
                store.close()
            assert len(set(found)) == len(found), f"a job is there twice: {found}"
            there = set(found)
            assert of["put"] - of["taking"] <= there, f"{of['put'] - of['taking'] - there} lost"
            assert there <= of["putting"] - of["took"], f"{there & of['took']} came back"


QUEUES = (Queueing,)
