"""Queues against a model: random commands to a Book, with a clock that the test turns, kills of
connections, restarts from the log, cut logs, compaction. After each, both have the same jobs.

The model is a plain list of dictionaries that is searched from one end to the other.
"""

import copy
import gc
import weakref

import msgspec
import pytest

from mqcore.journal.errors import QueueFull
from mqcore.journal.queues import book as records
from mqcore.journal.queues.book import Book
from mqcore.journal.queues.entry import DELAYED, HELD, READY
from mqcore.journal.queues.options import QueueLimits, QueueOptions
from mqcore.journal.queues.parking import Guest, Parking
from mqcore.journal.queues.replay import Replay
from mqcore.journal.queues.requests import Get, Put, headers_of

NAMES = ("a", "b")
OPTIONS = QueueOptions(visibility=30.0, grace=2.0, max_attempts=4, max_jobs=40, max_bytes=400)
LIMITS = QueueLimits(memory=60, producers=3, waiting=4)
STATES = {READY: "ready", DELAYED: "delayed", HELD: "held"}


class Log:
    """The records, as a journal has them: those before `first` are gone."""

    def __init__(self):
        self.rows = []
        self.first = 0

    def append(self, record):
        self.rows.append(msgspec.msgpack.encode(record))
        return len(self.rows) - 1

    def load(self, entry):
        assert entry.place >= self.first, "a body whose record is gone"
        last = msgspec.msgpack.decode(self.rows[entry.place])[-1]
        if isinstance(last, bytes):
            return last
        return last[entry.index] if isinstance(last[entry.index], bytes) else last[entry.index][-1]

    def book(self, now):
        book = Book(self.append, self.load, OPTIONS, LIMITS)
        replay = Replay(book)
        for place in range(self.first, len(self.rows)):
            replay.record(msgspec.msgpack.decode(self.rows[place]), place)
        replay.end(now)
        book.snapshot()
        self.durable = len(self.rows)
        return book


class Model:
    def __init__(self):
        self.jobs = []
        self.rank = 0           # the next place at the end of a queue
        self.front = 0          # and in front of it
        self.order = 0          # of deliveries and delays

    def find(self, number):
        return next((job for job in self.jobs if job["id"] == number), None)

    def of(self, name):
        return [job for job in self.jobs if job["queue"] == name]

    def full(self, name, bodies, extra):
        mine = self.of(name)
        return len(mine) + len(bodies) > OPTIONS.max_jobs or \
            sum(job["size"] for job in mine) + sum(map(len, bodies)) + len(bodies) * extra \
            > OPTIONS.max_bytes

    def put(self, name, first, bodies, now, priority, delay, ttl, headers):
        for number, body in enumerate(bodies, first):
            job = {"id": number, "queue": name, "body": body, "size": len(body) + len(headers),
                   "priority": priority, "attempts": 0, "expires": now + ttl if ttl else 0,
                   "ready": 0, "holder": None, "deadline": 0, "order": 0, "dead": None}
            self.jobs.append(job)
            if delay:
                self.delay(job, now + delay)
            else:
                self.push(job)

    def push(self, job):
        job["state"], job["rank"] = "ready", self.rank
        self.rank += 1

    def delay(self, job, when):
        job["state"], job["ready"], job["order"] = "delayed", when, self.order
        self.order += 1

    def take(self, name, most, room, holder, now):
        late, found = [], []
        for job in sorted((job for job in self.of(name) if job["state"] == "ready"),
                          key=lambda job: (job["priority"], job["rank"])):
            if len(found) == most:
                break
            if job["expires"] and job["expires"] <= now:
                late.append(job)
            elif found and job["size"] > room:
                break
            else:
                found.append(job)
                room -= job["size"]
        for job in late:
            self.jobs.remove(job)
        for job in found:
            job["attempts"] += 1
        self.hold(found, holder, now + OPTIONS.visibility)
        return found

    def hold(self, jobs, holder, deadline):
        for job in jobs:
            job.update(state="held", holder=holder, deadline=deadline, order=self.order)
        self.order += 1

    def held(self, number, attempts):
        job = self.find(number)
        return job if job and job["state"] == "held" and job["attempts"] == attempts else None

    def back(self, jobs, now, why, delay=0):
        good = []
        for job in jobs:
            dead = not job["queue"].endswith(".dead") and why != "untouched"
            if dead and job["attempts"] >= OPTIONS.max_attempts:
                self.bury(job, "attempts")
            elif job["expires"] and job["expires"] <= now:
                self.jobs.remove(job)
            else:
                good.append(job)
        for job in reversed(good):
            job["attempts"] -= why == "untouched"
            if delay:
                self.delay(job, now + delay)
            else:
                self.front -= 1
                job["state"], job["rank"] = "ready", self.front

    def bury(self, job, why):
        """The dead letter has a new id, which the Book says."""
        if job["queue"].endswith(".dead"):
            self.jobs.remove(job)
            return
        job.update(queue=job["queue"] + ".dead", dead=(job["id"], why), id=None, attempts=0,
                   expires=0, ready=0)
        self.push(job)

    def leave(self, holder, now):
        sooner = {}         # those deliveries end behind all others that end at the same time
        for job in sorted(self.jobs, key=lambda job: job["order"]):
            if job["state"] == "held" and job["holder"] == holder:
                if now + OPTIONS.grace < job["deadline"]:
                    job["order"] = sooner.setdefault(job["order"], self.order + len(sooner))
                    job["deadline"] = now + OPTIONS.grace
                job["holder"] = None
        self.order += len(sooner)

    def tick(self, now):
        for job in sorted((job for job in self.jobs if job["state"] == "delayed"
                           and job["ready"] <= now), key=lambda job: (job["ready"], job["order"])):
            self.push(job)
        self.jobs = [job for job in self.jobs if not (
            job["state"] != "held" and job["expires"] and job["expires"] <= now)]

    def restart(self, now):
        self.jobs.sort(key=lambda job: job["id"])
        self.front, self.rank = 0, 0
        for job in self.jobs:
            job["rank"] = self.rank
            self.rank += 1
            if job["state"] == "delayed" and job["ready"] <= now:
                job["state"] = "ready"
            elif job["state"] == "delayed":
                self.delay(job, job["ready"])
        for name in {job["queue"] for job in self.jobs}:
            self.hold([job for job in self.of(name) if job["state"] == "held"], None,
                      now + OPTIONS.visibility)


class Run:
    """Both, and the commands."""

    def __init__(self, rng):
        self.rng = rng
        self.now = 1e9
        self.log = Log()
        self.book = self.log.book(self.now)
        self.model = Model()
        self.given = []             # (id, attempts) that some consumer had
        self.ids = set()            # all that were ever used
        self.sequence = 0
        self.stamped = {}           # sequence number: (queue, first, bodies)
        self.past = []              # what a power cut may go back to

    def settle_up(self, seen=None):
        """The ids of new dead letters, then whether both are the same."""
        unknown = [job for job in self.model.jobs if job["id"] is None]
        mine = {job["id"] for job in self.model.jobs}
        fresh = [entry for entry in self.book.jobs.values() if entry.id not in mine]
        assert len(fresh) == len(unknown), (fresh, unknown)
        for entry in fresh:
            headers = dict(msgspec.msgpack.decode(entry.headers))
            job = next(job for job in unknown if job["dead"][0] == int(headers["dead-id"]))
            assert job["dead"][1] in headers["dead-reason"].decode()
            assert job["queue"] == headers["dead-queue"].decode() + ".dead"
            assert entry.id not in self.ids
            self.ids.add(entry.id)
            job["id"], job["size"] = entry.id, entry.size
        # dead letters of one command go to the end in the order in which the Book made them
        dead = sorted((job for job in unknown), key=lambda job: job["id"])
        for job, rank in zip(dead, sorted(job["rank"] for job in dead), strict=True):
            job["rank"] = rank
        self.compare()

    def compare(self):
        book, model = self.book, self.model
        assert {entry.id: (entry.queue.name, STATES[entry.state], entry.attempts, entry.size,
                           entry.priority)
                for entry in book.jobs.values()} == \
            {job["id"]: (job["queue"], job["state"], job["attempts"], job["size"],
                         job["priority"]) for job in model.jobs}
        for queue in book.queues.values():
            stats, mine = queue.stats(), model.of(queue.name)
            for state in STATES.values():
                assert getattr(stats, state) == sum(job["state"] == state for job in mine), state
            assert stats.bytes == sum(job["size"] for job in mine)
        entries = list(book.jobs.values())
        places = [entry.place for entry in entries]
        assert places == sorted(places)
        assert not places or places[0] >= self.log.first
        assert book.spilled == sum(entry.body is None for entry in entries)
        assert book.memory == sum(entry.size for entry in entries if entry.body is not None)
        held = book.leases.held.values()
        assert {lease for leases in held for lease in leases if not lease.open} \
            == set()
        self.past.append((len(self.log.rows), copy.deepcopy(model), self.log.first,
                          dict(self.stamped)))

    # -- commands --

    def put(self):
        rng = self.rng
        name, n = rng.choice(NAMES), rng.choice((1, 1, 2, 5, 20))
        bodies = [rng.randbytes(rng.randint(0, 12)) for _ in range(n)]
        how = {"priority": rng.choice((8, 8, 1, 16)), "delay": rng.choice((0, 0, 0, 1, 40)),
               "ttl": rng.choice((0, 0, 0, 5, 50))}
        headers = rng.choice((None, None, msgspec.msgpack.encode([["x", b"y"]])))
        self.sequence += 1
        full = self.model.full(name, bodies, len(headers or b""))
        try:
            first = self.book.put(name, bodies, self.now, headers=headers, producer=1,
                                  sequence=self.sequence, **how)
        except QueueFull:
            assert full
            return
        assert not full
        new = set(range(first, first + n))
        assert not new & self.ids
        self.ids |= new
        self.stamped[self.sequence] = name, first, bodies
        self.model.put(name, first, bodies, self.now, headers=headers or b"", **how)

    def put_again(self):
        """Of its last requests, the producer may repeat any; a restart changes nothing."""
        last = sorted(self.stamped)[-LIMITS.waiting:]
        if last:
            number = self.rng.choice(last)
            name, first, bodies = self.stamped[number]
            assert self.book.put(name, bodies, self.now, producer=1, sequence=number) == first

    def take(self):
        rng = self.rng
        name = rng.choice((*NAMES, "a.dead"))
        most, room, holder = rng.choice((1, 3, 30)), rng.choice((5, 1000)), rng.randint(1, 3)
        found = self.book.take(name, most, room, holder, self.now)
        mine = self.model.take(name, most, room, holder, self.now)
        assert [(entry.id, entry.attempts, entry.body) for entry in found] == \
            [(job["id"], job["attempts"], job["body"]) for job in mine]
        self.given += [(entry.id, entry.attempts) for entry in found]

    def some(self):
        """(ids, attempts) that a consumer may name: held ones, old ones, wrong ones."""
        rng = self.rng
        held = [(job["id"], job["attempts"]) for job in self.model.jobs if job["state"] == "held"]
        chosen = rng.sample(held, min(len(held), rng.randint(0, 8)))
        chosen += rng.sample(self.given, min(len(self.given), rng.randint(0, 2)))
        if rng.random() < 0.1:
            chosen.append((rng.randint(0, 100), rng.randint(0, 3)))
        chosen = list(dict(chosen).items())
        return chosen, [job for job in (self.model.held(*pair) for pair in chosen) if job]

    def settle(self):
        rng = self.rng
        chosen, mine = self.some()
        alive = {job["id"] for job in self.model.jobs}
        held = {job["id"] for job in mine}
        pairs = [number for number, _ in chosen], [attempt for _, attempt in chosen]
        how = rng.choice(("ack", "ack", "requeue", "later", "dead", "untouched", "extend"))
        if how == "ack":
            answer = self.book.ack(*pairs)
            for job in mine:
                self.model.jobs.remove(job)
        elif how == "extend":
            seconds = rng.choice((None, 1.0, 100.0))
            answer = self.book.extend(*pairs, 2, self.now, seconds)
            for name in dict.fromkeys(job["queue"] for job in mine):
                self.model.hold([job for job in mine if job["queue"] == name], 2, self.now + (
                    OPTIONS.visibility if seconds is None else seconds))
        elif how == "dead":
            answer = self.book.reject(*pairs, self.now, requeue=False)
            for job in mine:
                self.model.bury(job, "rejected")
        else:
            delay = 7.0 if how == "later" else 0.0
            answer = self.book.reject(*pairs, self.now, delay=delay, untouched=how == "untouched")
            self.model.back(mine, self.now, how, delay)
        numbers = {number for number, _ in chosen}
        assert tuple(map(set, answer)) == (numbers - alive, numbers & alive - held)

    def pass_time(self):
        """Several things that are due at once are done one after the other."""
        until = self.now + self.rng.choice((0.5, 3, 20, 100))
        while True:
            due = self.book.due
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            self.model.tick(self.now)
            for job in self.expired_leases():
                self.model.back(job, self.now, "timed out")
            while self.book.tick(self.now):
                pass
            self.settle_up()
        self.now = until

    def expired_leases(self):
        rows = {}
        for job in self.model.jobs:
            if job["state"] == "held" and job["deadline"] <= self.now:
                rows.setdefault((job["deadline"], job["order"]), []).append(job)
        entries = self.book.jobs
        for key in sorted(rows):
            # within a delivery, in the order of the delivery
            lease = entries[rows[key][0]["id"]].lease
            yield sorted(rows[key], key=lambda job: lease.entries.index(entries[job["id"]]))

    def leave(self):
        """A connection dies."""
        holder = self.rng.randint(1, 3)
        self.book.leases.leave(holder, self.now)
        self.model.leave(holder, self.now)

    def purge(self):
        if self.rng.random() < 0.2:
            name = self.rng.choice(NAMES)
            gone = [job for job in self.model.of(name) if job["state"] != "held"]
            assert self.book.purge(name) == len(gone)
            for job in gone:
                self.model.jobs.remove(job)

    def compact(self):
        """What the store does: old jobs to the end, a snapshot, and the beginning goes."""
        entries = list(self.book.jobs.values())
        if entries and self.rng.random() < 0.5:
            self.book.move(entries[:self.rng.randint(1, len(entries))])
        snapshot = self.book.snapshot()
        first = next(iter(self.book.jobs.values()), None)
        self.log.first = min(snapshot, len(self.log.rows) if first is None else first.place)

    def restart(self):
        """kill -9 of the server, or its end."""
        if self.rng.random() < 0.5:
            self.book.snapshot(closed=True)
        self.book = self.log.book(self.now)
        self.model.restart(self.now)

    def power_cut(self):
        """The last commands are forgotten. Their ids are not used again."""
        length, model, first, stamped = self.rng.choice(self.past[-4:])
        if first < self.log.first or length < self.log.durable:
            return
        del self.log.rows[length:]
        self.model = copy.deepcopy(model)
        self.stamped = dict(stamped)
        self.past = [row for row in self.past if row[0] <= length]
        self.book = self.log.book(self.now)
        self.model.restart(self.now)

    COMMANDS = ("put",) * 6 + ("take",) * 6 + ("settle",) * 6 + (
        "pass_time", "pass_time", "leave", "purge", "compact", "restart", "put_again")

    def step(self, power_cuts):
        name = self.rng.choice(self.COMMANDS)
        if power_cuts and self.rng.random() < 0.02 and self.past:
            name = "power_cut"
        getattr(self, name)()
        self.settle_up()


@pytest.mark.parametrize("power_cuts", [False, True])
@pytest.mark.parametrize("round", [
    *range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 10))])
def test_a_book_does_what_the_model_does(rng, round, power_cuts):
    run = Run(rng)
    for _ in range(400):
        run.step(power_cuts)
    run.now += 1e6      # then everything can be had
    for _ in range(3):
        run.pass_time()
    for name in run.book.queues:
        while run.book.queues[name].ready:
            for entry in run.book.take(name, 10, 1000, 1, run.now):
                run.model.find(entry.id)["state"] = "held"
                run.book.ack([entry.id], [entry.attempts])
                run.model.jobs.remove(run.model.find(entry.id))
    run.compare()


def test_kinds_of_records_are_as_documented():
    assert [records.PUT, records.TAKE, records.DONE, records.BACK, records.DEAD, records.MOVE,
            records.QUEUE, records.SNAP] == list(range(8))


def test_stored_headers_that_are_none():
    """What an earlier version stored without a look becomes a dead letter all the same."""
    log = []
    book = Book(lambda record: log.append(record) or len(log) - 1, None,
                QueueOptions(visibility=1.0, max_attempts=1))
    book.put("q", [b"x"], 0.0, headers=b"\xc1")
    book.take("q", 1, 100, "me", 0.0)
    book.tick(2.0)
    (found, body), = book.peek("q.dead", 1, 100)
    headers = dict(headers_of(found.headers))
    assert body == b"x" and headers["dead-headers"] == b"\xc1"
    assert headers["dead-reason"] == b"1 attempts, the last one timed_out"


def test_a_closed_book_is_freed():
    """The collector does not look at entries, and close() cuts the circles that they are in."""
    log = []
    book = Book(lambda record: log.append(record) or len(log) - 1, None)
    book.put("q", [b"ready", b"held"], 0.0)
    book.take("q", 1, 100, "me", 0.0)
    queue, lease = weakref.ref(book.queues["q"]), next(iter(book.leases.held["me"]))
    book.close()
    assert not lease.entries
    del book
    gc.collect()
    assert queue() is None


@pytest.mark.parametrize("kind", ["get", "put"])
def test_what_has_waited_is_not_kept(kind):
    """Behind a request that waits for ever, others come and go."""
    def request(number):
        return Get(1, number, "q", 1e9, 1, 1) if kind == "get" else \
            Put(1, number, "q", 0, 0, 0, 1e9, [bytes(1000)])

    parking = Parking(QueueLimits())
    parking.park(Guest(None), request(0), 1e9)
    guest, ended = Guest(None), []
    for number in range(2000):
        parking.park(guest, request(number), 1e9)
        ended.append(weakref.ref(guest.parked[number]))
        parking.end(guest.parked[number])
    (line,) = parking._lines.values()
    assert len(line) < 40 and parking.waits("q") == parking.count == 1
    kept = [ref().request for ref in ended if ref() is not None]
    assert len(kept) <= 1100        # by the timer, and without their bodies
    assert not any(getattr(one, "bodies", None) for one in kept)
    assert [parked.request.number for parked in parking.line(type(request(0)), "q")
            if parking.end(parked) is None] == [0]
