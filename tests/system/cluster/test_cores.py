"""The cores without I/O: balancing, limits, topics, flows, sessions, frames, the directory."""

import random
from types import SimpleNamespace

import pytest
from cluster_sessions import linked
from hypothesis import given
from hypothesis import strategies as st

from mqcore.cluster import frames, requests
from mqcore.cluster.balance import EJECTED, Balancer, Budget
from mqcore.cluster.directory import Directory, Member
from mqcore.cluster.errors import KeyRejected, MalformedFrame, NoiseError
from mqcore.cluster.flow import Flow
from mqcore.cluster.frames import Offer, Record
from mqcore.cluster.key import Key
from mqcore.cluster.limits import Gate
from mqcore.cluster.patterns import Rising, Table, check_pattern, check_topic, matches
from mqcore.cluster.requests import Attempt, Call, Requests
from mqcore.cluster.session import BACKLOG, REKEY
from mqcore.cluster.window import LEAST
from mqcore.errors import UsageError


def record(number, zone="", weight=1.0, incarnation=1):
    return Record(bytes([number]) * 16, f"tcp://10.0.0.{number}:1", incarnation, zone,
                  {"s": Offer(weight)})


def members(*weights, zone=""):
    return [Member(record(number, zone, weight)) for number, weight in enumerate(weights, 1)]


# -- balancing -------------------------------------------------------------------------------------


def simulate(those, rounds=3000, speed=lambda member: 0.001):
    """Virtual time: each request keeps its place for ten rounds."""
    balancer, counts, out = Balancer("", random.Random(1)), dict.fromkeys(those, 0), []
    for now in range(rounds):
        while out and out[0][0] <= now:
            _, member = out.pop(0)
            member.score("s").answered(speed(member), 0, now / 1000)
        chosen = balancer.choose(those, "s", now / 1000)
        chosen.score("s").sent(0.0)
        counts[chosen] += 1
        out.append((now + 10, chosen))
    return [counts[member] for member in those]


def test_weights_share_the_load():
    light, heavy = simulate(members(1.0, 3.0))
    assert 2 < heavy / light < 4.5
    assert simulate(members(0.0, 1.0))[0] == 0


def test_slow_members_get_less():
    those = members(1.0, 1.0, 1.0)
    counts = simulate(those, speed=lambda member: 0.01 if member is those[0] else 0.001)
    assert counts[0] < min(counts[1:]) / 2


def test_ejection_spares_half():
    balancer, those = Balancer("", random.Random(2)), members(1, 1, 1, 1)
    for member in those[:3]:
        for number in range(5):
            member.score("s").sent(0.0)
            assert member.score("s").failed(100.0) is (number == 4)
    those[3].score("s").sent(0.0)           # as the others: one that was never asked comes first
    those[3].score("s").released()
    assert {balancer.choose(those, "s", 101.0) for _ in range(50)} >= {those[3]}
    chosen = {balancer.choose(those, "s", 101.0) for _ in range(200)}
    assert len(chosen) == 2                 # of three that failed, two are out
    assert {balancer.choose(those, "s", 101 + EJECTED) for _ in range(300)} == set(those)


def test_a_link_that_breaks_with_many_requests_ejects_once():
    score = members(1)[0].score("s")
    for _ in range(100):
        score.sent(0.0)
    assert sum(score.failed(10.0) for _ in range(50)) == 1 and score.until == 10 + EJECTED
    assert not any(score.failed(10.0 + EJECTED / 2) for _ in range(45))
    assert [score.failed(11.0 + EJECTED) for _ in range(5)] == [False] * 4 + [True]
    assert score.until == 11 + 3 * EJECTED and score.in_flight == 0


class Asked:
    """A link that has attempts to withdraw."""

    def __init__(self):
        self.attempts = {}

    def withdraw_request(self, number):
        pass


def test_a_member_that_was_asked_too_late_to_answer_has_not_failed():
    """A repetition, say, a moment before the deadline. Five of them ejected a member that was well,
    while another one was away."""
    asking = Requests(None)
    late, slow = members(1, 1)
    for member in (late, slow):
        member.score("s").sent(0.0)
        member.score("s").answered(0.01, 0, 0.0)
    for number in range(4):
        call = Call("s", b"", 2.0, None, True, {}, "", None)
        for member, at in ((late, 1.99), (slow, 0.0)):
            member.score("s").sent(0.0)
            call.attempts.append(Attempt(call, number, member, Asked(), member.score("s"), at))
        asking._give_up(call, 2.0)
        assert not call.attempts
    assert (late.score("s").failures, slow.score("s").failures) == (0, 4)
    assert late.score("s").in_flight == slow.score("s").in_flight == 0


def test_a_member_that_has_ceased_to_answer_is_ejected_though_time_outs_are_short():
    """Shorter than three times what it took to answer before."""
    told, member = Told(), members(1)[0]
    asking, score = Requests(told), member.score("s")
    score.sent(0.0)
    score.answered(0.1, 0, 0.0)
    for number in range(20):
        score.sent(0.0)
        call = Call("s", b"", 0.0, None, False, {}, "", None)
        at = number / 4
        call.attempts.append(Attempt(call, number, member, Asked(), score, at))
        asking._give_up(call, at + 0.25)
    assert told.events == ["ejected"] and score.in_flight == 0


class Told:
    """What a node tells of its members."""

    def __init__(self):
        self.directory, self.events = self, []

    def event(self, what, member, reason):
        self.events.append(what)


@pytest.mark.parametrize("how", ["deadline", "link"])
def test_a_loop_that_stood_still_ejects_nobody(how, monkeypatch):
    """Its process was stopped: what members have answered meanwhile is unread."""
    told, member = Told(), members(1)[0]
    asking, score, link = Requests(told), member.score("s"), Asked()

    def ejections(now):
        for number in range(5):
            score.sent(0.0)
            call = Call("s", b"", now, None, False, {}, "", None, done=True)
            attempt = Attempt(call, number, member, link, score, now - 2.0)
            call.attempts.append(attempt)
            if how == "deadline":
                asking._give_up(call, now)
            else:
                link.attempts[number] = attempt
        monkeypatch.setattr(requests, "time", SimpleNamespace(monotonic=lambda: now))
        asking.unlinked(link, member, "it broke")
        assert score.in_flight == 0
        return score.ejections

    asking.tick(100.0)
    assert ejections(102.0) == 0        # before the tick that is due
    asking.tick(102.0)
    assert ejections(102.5) == 0
    for now in (102.5, 103.0, 103.5, 104.0):
        asking.tick(now)
    assert ejections(104.1) == 1
    assert told.events == ["ejected"]


def test_zones_and_keys():
    near, far = Member(record(1, "eu")), Member(record(2, "us"))
    balancer = Balancer("eu", random.Random(3))
    assert {balancer.choose([near, far], "s", 0) for _ in range(20)} == {near}
    assert balancer.choose([near, far], "s", 0, [near]) is far
    assert balancer.choose([near, far], "s", 0, [near, far]) is None
    those = members(*[1] * 9)
    homes = {number: balancer.choose(those, "s", 0, (), b"%d" % number) for number in range(300)}
    assert len(set(homes.values())) == 9
    without = those[:4] + those[5:]
    moved = [number for number, home in homes.items()
             if balancer.choose(without, "s", 0, (), b"%d" % number) is not home]
    assert all(homes[number] is those[4] for number in moved)


def test_retries_are_a_tenth():
    budget = Budget()
    while budget.take():
        pass
    taken = 0
    for _ in range(1000):
        budget.request()
        taken += budget.take()
    assert 95 <= taken <= 101 and budget.refused > 0


# -- limits ----------------------------------------------------------------------------------------


class Job:
    def __init__(self, size, deadline=1e9):
        self.size, self.deadline, self.cancelled = size, deadline, False

    def expired(self, now):
        return now > self.deadline


@given(st.lists(st.tuples(st.sampled_from(["offer", "finish", "cancel"]), st.integers(0, 60),
                          st.integers(0, 10)), max_size=80))
def test_a_gate_loses_nothing(steps):
    gate, running, waiting = Gate(2, 100), [], []
    for now, (what, size, life) in enumerate(steps):
        if what == "offer":
            job = Job(size, now + life)
            verdict = gate.offer(job)
            assert verdict == ("run" if len(running) < 2 else
                               "wait" if sum(j.size for j in waiting) + size <= 100 else "refuse")
            {"run": running, "wait": waiting, "refuse": []}[verdict].append(job)
        elif what == "cancel" and waiting + running:
            job = (waiting + running)[size % len(waiting + running)]
            gate.withdrawn(job)     # one that runs goes on
            if job in waiting:
                waiting.remove(job)
        elif what == "finish" and running:
            running.pop(0)
            gate.finished()
            while (found := gate.next(now)) is not None:
                assert waiting.pop(0) is found[0]
                assert found[1] is not found[0].expired(now)
                if found[1]:
                    running.append(found[0])
            assert len(running) == 2 or not waiting
        accounts = gate.accounts()
        assert accounts["offered"] == sum(accounts[name] for name in accounts if name != "offered")
        assert gate.running == len(running) and list(gate.queue) == waiting
        assert gate.bytes == sum(job.size for job in waiting)


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "topic", "match"), [
    ("a.b", "a.b", True), ("a.b", "a.c", False), ("a.*", "a.b", True), ("a.*", "a", False),
    ("a.*", "a.b.c", False), ("a.>", "a.b", True), ("a.>", "a.b.c", True), ("a.>", "a", False),
    (">", "a", True), ("*.b.>", "a.b.c", True), ("*.b.>", "a.c.c", False), ("*", "a", True),
])
def test_wildcards(pattern, topic, match):
    assert matches(pattern, topic) is match
    table = Table()
    table.add("taker", check_pattern(pattern))
    assert (table.takers(topic) == {("taker", "")}) is match


@pytest.mark.parametrize("bad", ["", ".", "a.", "a..b", "a.>.b", "x" * 300])
def test_bad_patterns(bad):
    with pytest.raises(UsageError):
        check_pattern(bad)


@pytest.mark.parametrize("bad", ["", "a..b", "a.*", ">", None, "x" * 300, "a." * 70 + "a"])
def test_bad_topics(bad):
    with pytest.raises(UsageError):
        check_topic(bad)


TOKEN = st.sampled_from(["a", "b", "*"])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3),
                          st.lists(TOKEN, min_size=1, max_size=3).map(".".join)), max_size=40))
def test_a_table_is_what_was_added(steps):
    table, model = Table(), set()
    for add, taker, pattern in steps:
        (table.add if add else table.drop)(taker, pattern)
        (model.add if add else model.discard)((taker, pattern))
        for topic in ("a", "b.a", "a.b.b"):
            assert table.takers(topic) == {(one, "") for one, its in model if matches(its, topic)}
    table.forget(0)
    assert table.of == {one: {(its, "") for other, its in model if other == one}
                        for one, _ in model if one != 0}
    for one in (1, 2, 3):
        table.forget(one)
    assert table._root.empty and not table.of


def test_numbers_must_rise():
    rising = Rising(limit=2)
    assert [rising.admit("a", number) for number in (3, 3, 2, 4)] == [True, False, False, True]
    assert rising.dropped == 2
    rising.admit("b", 1)
    rising.admit("c", 1)
    assert len(rising._last) == 2


# -- tunnels ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 900), max_size=30), st.randoms())
def test_a_flow_delivers_everything_within_its_window(sizes, rng):
    """Messages of any length pass a window of 1,000 bytes, whatever the order of events."""
    out, back = Flow(1000), Flow(1000)
    out.credit = back.window
    pieces = [(bytes([i % 256]) * n, True) if n < 400 else part
              for i, n in enumerate(sizes)
              for part in ([(bytes([i % 256]) * n, True)] if n < 400 else
                           [(bytes([i % 256]) * 300, False), (bytes([i % 256]) * (n - 300), True)])]
    got, stuck = [], 0
    while (pieces or back.messages) and stuck < 3:
        moved = False
        if pieces and rng.random() < 0.7 and out.spend(len(pieces[0][0])):
            back.data(*pieces.pop(0))
            moved = True
        elif back.messages and rng.random() < 0.7:
            got.append(back.take())
            moved = True
        assert back.room <= 1000 and sum(len(one) for one, _ in back.messages) < 1000 + 900
        out.credit += back.grant()
        stuck = 0 if moved or back.messages or out.credit > 0 else stuck + 1
    assert got == [bytes([i % 256]) * n for i, n in enumerate(sizes)]


def test_a_peer_without_credit_is_refused():
    flow = Flow(1000)
    flow.data(bytes(1000), True)
    with pytest.raises(MalformedFrame):
        flow.data(b"x", True)
    with pytest.raises(MalformedFrame):
        Flow(1 << 20, message=10).data(bytes(11), True)


# -- sessions and frames ---------------------------------------------------------------------------


def test_a_session_seals_frames():
    (one, two), wires = linked()
    assert one.ready and two.ready and one.remote and one.remote != two.remote
    one.send(frames.Request(1, "adder", 5, b"secret"))
    sealed = wires[0].pop() if wires[0] else wires[1].pop()
    assert b"secret" not in sealed and b"adder" not in sealed
    assert two.receive(sealed) == frames.Request(1, "adder", 5, b"secret")
    with pytest.raises(NoiseError):
        two.receive(sealed)             # again
    with pytest.raises(MalformedFrame):
        one.receive(b"\x05plain")


def test_a_session_refuses_another_key():
    with pytest.raises(KeyRejected):
        linked(Key.generate(), Key.generate())


def test_sessions_rekey_together(monkeypatch):
    monkeypatch.setattr("mqcore.cluster.session.REKEY", 3)
    assert REKEY > 3
    (one, two), wires = linked()
    for number in range(10):
        one.send(frames.Cancel(number))
        assert two.receive((wires[0] or wires[1]).pop()) == frames.Cancel(number)


def test_large_frames_take_turns_within_a_window():
    (one, two), wires = linked()
    large = [frames.Request(number, "t", 0, bytes([number]) * 3_000_000) for number in (1, 2)]
    assert all(one.send(frame) for frame in large)
    wire = wires[0] or wires[1]
    assert sum(map(len, wire)) < LEAST + 2 * frames.PART       # and waits for the receiver
    one.send(frames.Cancel(7))
    got = []
    for _ in range(1000):
        if not wire:
            break
        frame = two.receive(wire.pop(0))
        got += [frame] if frame is not None else []
        answers = wires[1] if wire is wires[0] else wires[0]
        while answers:
            one.receive(answers.pop(0))
    assert [type(frame) for frame in got] == [frames.Cancel, frames.Request, frames.Request]
    assert [frame.body for frame in got[1:]] == [frame.body for frame in large]
    assert one.waiting == 0 and two._held == 0


LARGE = 3_000_000       # bytes: takes several messages


def publication(number, size=1):
    return frames.Publish(number, "t", bytes(size))


def carry(one, two, wires, messages=10_000):
    """What arrives at the other session of what was sent."""
    wire, back = wires if wires[0] else wires[::-1]
    got = []
    while wire and messages:
        frame = two.receive(wire.pop(0))
        got += [frame] if frame is not None else []
        while back:
            one.receive(back.pop(0))
        messages -= 1
    return got


def test_small_publications_wait_for_a_large_one_and_other_frames_do_not():
    (one, two), wires = linked()
    sizes = [LARGE, 1, 2 * LARGE, 2, 3, LARGE]
    for number, size in enumerate(sizes, 1):
        assert one.send(publication(number, size))
    assert one.send(frames.Cancel(7)) and one.waiting
    got = carry(one, two, wires)
    assert got[0] == frames.Cancel(7)
    assert [(frame.seq, len(frame.body)) for frame in got[1:]] == list(enumerate(sizes, 1))
    assert one.waiting == 0 and two._held == 0
    assert one.send(publication(7)) and carry(one, two, wires) == [publication(7)]


def test_what_waits_behind_a_large_one_is_bounded_and_counted():
    (one, two), wires = linked()
    sent = 1 + (one.send(publication(1, LARGE)) and 0)
    while one.send(publication(sent + 1, 30_000)):
        sent += 1
    assert one.waiting > 10 << 20
    assert one.send(frames.Cancel(7))
    assert len(carry(one, two, wires, 20)) <= 1
    assert one.give_up() == sent and one.waiting == one.give_up() == 0
    carry(one, two, wires)
    assert one.send(publication(sent + 1))      # and nothing waits any more
    assert carry(one, two, wires) == [publication(sent + 1)]


def test_publications_behind_one_that_is_larger_than_all_that_may_wait():
    (one, two), wires = linked()
    sizes = [BACKLOG + LARGE, *[1] * 20]
    assert all(one.send(publication(number, size)) for number, size in enumerate(sizes, 1))
    assert [len(frame.body) for frame in carry(one, two, wires)] == sizes


def test_tiny_parts_are_not_reported_one_by_one():
    """A peer that sends them and takes nothing would fill the memory."""
    (one, two), wires = linked()
    for number in range(10_000):
        one._seal(frames.encode(frames.Part(number, frames.encode(frames.Cancel(number)), True)))
    wire, back = wires if wires[0] else wires[::-1]
    assert all(two.receive(data) == frames.Cancel(number) for number, data in enumerate(wire))
    assert len(back) < 50


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_malformed(data):
    try:
        assert isinstance(frames.decode(data), frames.Frame)
    except MalformedFrame:
        pass


@given(st.integers(0, 2000), st.integers(0, 255), st.sampled_from([
    frames.Hello(record(1)), frames.Reply(1, frames.OK, 3, b"x"), frames.Data(1, True, b"x", True),
    frames.Interest([("a.>", "")], [], 7, 6, True)]))
def test_a_frame_with_a_changed_byte(at, value, frame):
    data = bytearray(frames.encode(frame))
    assert frames.decode(bytes(data)) == frame
    data[at % len(data)] = value
    try:
        frames.decode(bytes(data))
    except MalformedFrame:
        pass


# -- the directory ---------------------------------------------------------------------------------


def test_a_directory_takes_newer_records_only():
    told = []
    directory = Directory(record(1), told.append, lambda member: None)
    member = directory.heard(record(2))
    assert directory.heard(record(2, weight=9.0)) is member
    assert member.record.services["s"].weight == 1.0
    directory.heard(record(2, weight=9.0, incarnation=2))
    assert member.record.services["s"].weight == 9.0
    assert directory.heard(record(1, incarnation=9)) is None        # ourselves
    assert not directory.offering("s")
    directory.up(member, object())
    assert directory.offering("s") == (member,)
    directory.down(member, "cut")
    assert not directory.offering("s")
    directory.gone(member, "left")
    assert directory.heard(record(2, incarnation=2)) is None        # old news
    assert directory.heard(record(2, incarnation=2), itself=True) is not None
    assert [event.kind for event in told] == ["joined", "offers", "link", "link lost", "left",
                                              "joined"]
