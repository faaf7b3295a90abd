"""What tests of bridges share: a source that counts, a run until something holds, the laws."""

import asyncio

from mqcore import bridge

LIMIT = 60.0


class Numbers(bridge.Source):
    """Messages 0 to count - 1, again from the first unacknowledged one after each open()."""

    def __init__(self, count, fail_acks=()):
        self.count = count
        self.done = set()
        self.fail_acks = set(fail_acks)
        self.more = asyncio.Event()

    async def open(self):
        self.next = min(set(range(self.count)) - self.done, default=self.count)
        self.more.set()

    async def receive(self, most):
        while self.next >= self.count:
            self.more.clear()
            await self.more.wait()
        found = range(self.next, min(self.count, self.next + most))
        self.next = found.stop
        return [bridge.Message(b"%d" % n, id=str(n), token=n) for n in found]

    async def acknowledge(self, messages):
        for message in messages:
            if message.token in self.fail_acks:
                self.fail_acks.remove(message.token)
                self.next = self.count      # it was lost; receive() finds nothing more
                raise ConnectionError("lost before the acknowledgment")
            self.done.add(message.token)

    def explain(self):
        return "numbers"


class Sink(bridge.Target):
    """Keeps what it is sent. `lose`: the connection is lost after so many of a call, once each;
    `bad`: refused for good; `deadly`: always ends the connection."""

    def __init__(self, source=None, lose=(), bad=(), deadly=()):
        self.source, self.lose, self.bad, self.deadly = source, list(lose), bad, deadly
        self.taken = []

    async def send(self, messages):
        refused = {}
        stop = self.lose.pop(0) if self.lose else None
        for index, message in enumerate(messages):
            if index == stop or message.body in self.deadly:
                raise ConnectionError("lost in the middle")
            if message.body in self.bad:
                refused[index] = ValueError("malformed")
                continue
            if self.source is not None:
                assert int(message.body) not in self.source.done, "acknowledged before it was taken"
            self.taken.append(message)
        return refused

    def explain(self):
        return "sink"


def bodies(sink):
    return [int(message.body) for message in sink.taken]


async def moved(runner, until):
    task = asyncio.ensure_future(runner.run())
    async with asyncio.timeout(LIMIT):
        while not until() and not task.done():
            await asyncio.sleep(0.005)
        runner.stop()
        await task


def laws(counts):
    assert counts.received == counts.delivered + counts.dead + counts.discarded + \
        counts.repeats + counts.waiting
    assert counts.received == counts.acknowledged + counts.unacknowledged + counts.held
