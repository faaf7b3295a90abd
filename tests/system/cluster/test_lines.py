"""Messages that are not cut have a window, too: frames that carry none do not wait for them."""

import asyncio
import random
from collections import deque

import pytest
from cluster_sessions import linked

from mqcore.cluster import frames, window
from mqcore.cluster import link as link_module
from mqcore.cluster.link import Link
from mqcore.cluster.session import AHEAD, BACKLOG, COST, ROW, SHORT, WHOLE
from mqcore.cluster.window import LEAST
from mqcore.errors import SendTimeout

SIZES = [0, 100, SHORT - 100, 30_000, WHOLE - 100]


@pytest.fixture
def pair():
    """Two sessions, what the first one has sent, and carry(messages): what has arrived of it."""
    (one, two), wires = linked()
    one.send(frames.Ping(1))
    wire, back = wires if wires[0] else wires[::-1]

    def carry(messages=1 << 30):
        got = []
        while wire and messages:
            frame = two.receive(wire.pop(0))
            got += [frame] if frame is not None else []
            while back:
                one.receive(back.pop(0))
            messages -= 1
        return got

    carry()
    return one, two, wire, carry


def request(number, size):
    return frames.Request(number, "t", 0, bytes(size))


KINDS = [request, lambda number, size: frames.Publish(number, "t", bytes(size)),
         lambda number, size: frames.Broadcast(number, "t", bytes(size)),
         lambda number, size: frames.Survey(number, "t", 0, bytes(size)),
         lambda number, size: frames.Answer(number, bytes(size)),
         lambda number, size: frames.Reply(number, frames.OK, 0, bytes(size))]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_front_of_a_probe_has_a_bound(pair, kind, size):
    one, two, wire, carry = pair
    count = 8_000_000 // (size + COST)
    sent = [kind(number, size) for number in range(count)]
    assert all(one.send(frame) for frame in sent)
    on_the_way = sum(len(data) + COST - 17 for data in wire)
    assert LEAST <= on_the_way <= LEAST + AHEAD + WHOLE + COST
    assert one.send(frames.Ping(7))
    before = len(wire)
    assert carry(before)[-1] == frames.Ping(7)
    carry()
    assert one.waiting == 0 and not one.sources and one.give_up() == 0
    assert two.frames_in > count


@pytest.mark.parametrize("size", SIZES)
def test_all_arrive_in_their_order(pair, size):
    one, _, _, carry = pair
    sent = [request(number, size) for number in range(3_000_000 // (size + COST))]
    assert all(one.send(frame) for frame in sent)
    assert carry() == sent


def test_a_short_one_goes_ahead_of_longer_ones(pair):
    one, _, wire, carry = pair
    for number in range(100):
        assert one.send(request(number, 60_000))
    assert one.waiting > 5_000_000
    before = len(wire)
    assert one.send(request(1000, 1)) and len(wire) == before + 1
    assert carry(before + 1)[-1] == request(1000, 1)
    assert len(carry()) == 100 - before


def test_many_short_ones_leave_others_their_share(pair):
    one, _, _, carry = pair
    tunnel = frames.Data(1, True, bytes(8_000), False)

    def source():
        one.send_reserved(one.reserve(tunnel))
        return True

    one.sources.enter(source)
    had = {frames.Data: 0, frames.Request: 0}
    shorts = 0
    assert one.send(request(1, 200_000))
    for _ in range(3000):
        while one.send(request(shorts, 1000)) and one.waiting < 1 << 20:
            shorts += 1
        for frame in carry(1):
            had[type(frame)] += len(frame.body)
    assert shorts > 1000
    assert 0.5 < had[frames.Request] / had[frames.Data] < 2


def test_publications_keep_their_order_whatever_their_size(pair):
    one, _, wire, carry = pair
    sizes = [60_000, 1, 30_000, 200_000, 2, 60_000, 2, 100_000, 70_000, 3] * 5
    sent = [frames.Publish(number, "t", bytes(size)) for number, size in enumerate(sizes)]
    got = []
    for frame in sent:
        assert one.send(frame)
        got += carry(1)
    assert got + carry() == sent and one.waiting == 0


def test_what_waits_in_a_line_has_a_bound(pair):
    one, _, wire, carry = pair
    for size in (1, 60_000):
        count = total = 0
        while one.send(frame := request(count, size)):
            count += 1
            total += len(frames.encode(frame)) + ROW
        assert BACKLOG - 2 * WHOLE < total < BACKLOG + LEAST + AHEAD + 2 * WHOLE
        assert one.send(frames.Reply(1, frames.OVERLOADED, 0), at_once=True)
        waiting = count - len(wire) + 1
        assert one.give_up() == waiting and one.waiting == 0
        carry()


def test_a_node_that_leaves_sends_what_waits_in_lines_without_room(pair):
    one, _, _, carry = pair
    sent = [request(number, 60_000) for number in range(50)]
    sent += [frames.Publish(number, "t", bytes(100)) for number in range(5000)]
    assert all(one.send(frame) for frame in sent) and one.waiting
    one.hurry()
    assert one.waiting == 0 and one.send(frames.Leave())
    got = carry()
    assert len(got) == len(sent) + 1 and got[-1] == frames.Leave()
    assert not one.window.unacked > LEAST and not one.sources.lines.had


def publish(one, number, size):
    assert one.send(frames.Publish(number, "t", bytes(size)))


def test_publications_keep_their_order_behind_a_line_that_was_hurried(pair):
    one, two, wire, carry = pair
    for number in range(1000):
        publish(one, number, 1000)
    one.hurry()
    for number, size in enumerate([100, 200_000, 100, 100], 1000):
        publish(one, number, size)
    assert [frame.seq for frame in carry()] == list(range(1004))


@pytest.mark.parametrize("count", [20, 50, 60, 200])
@pytest.mark.parametrize("size", [30_000, 3_000_000])
def test_short_messages_that_keep_the_window_full_take_turns(pair, monkeypatch, count, size):
    """As many callers that ask again as soon as they have their answer. The link is slow, so the
    window does not grow."""
    monkeypatch.setattr(window.Window, "_measured", lambda *measured: None)
    one, two, wire, carry = pair
    for number in range(count):
        assert one.send(request(number, 4000))
    assert one.send(request(1 << 40, size))
    taken, got = 0, []
    while not any(frame.id == 1 << 40 for frame in got):
        for frame in got:
            taken += len(frame.body)
            assert one.send(request(frame.id, 4000))
        assert taken < size + 1_000_000
        got = carry(1)


@pytest.mark.parametrize("size", [1000, 30_000, 200_000])
@pytest.mark.parametrize("hurry", [False, True])
def test_what_waits_when_the_connection_breaks_is_counted(pair, monkeypatch, size, hurry):
    """Also if the other side's report, or the end of the node, comes before the link knows."""
    one, two, wire, carry = pair
    count = 3_000_000 // size
    for number in range(count):
        publish(one, number, size)
    monkeypatch.setattr(one, "_send_raw", lambda data: False)
    arrived = carry()
    if hurry:
        one.hurry()
    whole = sum(isinstance(frame, frames.Publish) for frame in arrived)
    assert whole + one.give_up() == count and one.waiting == 0


@pytest.mark.parametrize("size", [100, 30_000])
@pytest.mark.parametrize("hurry", [False, True])
def test_requests_that_are_not_wanted_any_more_do_not_leave_their_line(pair, size, hurry):
    one, _, wire, carry = pair
    count = 2_000_000 // size
    for number in range(count):
        assert one.send(request(number << 7, size))
        assert one.send(frames.Broadcast(number, "t", bytes(size)))
    in_line = {number for number in range(count) if one.withdraw(number << 7)}
    assert in_line and not one.withdraw(min(in_line) << 7) and not one.withdraw(1)
    if hurry:
        one.hurry()
    got = carry()
    numbers = [frame.id >> 7 for frame in got if isinstance(frame, frames.Request)]
    assert numbers == [number for number in range(count) if number not in in_line]
    assert len(got) - len(numbers) == count and one.waiting == 0 == one.give_up()


def test_requests_that_are_not_wanted_any_more_are_not_counted_as_unsent(pair):
    one, *_ = pair
    wanted = 0
    for number in range(100):
        assert one.send(request(number, 30_000))
    for number in range(0, 100, 3):
        wanted += one.withdraw(number)
    waiting = len(one._long.frames)
    assert one.give_up() == waiting - wanted


@pytest.mark.parametrize("sent", range(4))
def test_a_large_request_is_withdrawn_when_its_connection_has_just_broken(pair, monkeypatch, sent):
    """After that many of its pieces, and before it is known."""
    one, *_ = pair
    taken = []
    monkeypatch.setattr(one, "_send_raw", lambda data: len(taken) < sent and not taken.append(data))
    one.send(request(1, 3 * frames.PART))
    one.withdraw(1)
    assert one.waiting == 0 == one.give_up() and not one._large and not one._large_of


@pytest.mark.parametrize("size", [1000, 60_000])
def test_requests_that_are_withdrawn_leave_their_place_to_others(pair, size):
    one, _, _, carry = pair
    number = 0
    while one.send(request(number, size)):
        number += 1
    withdrawn = {of for of in range(number) if of % 7 and one.withdraw(of)}
    assert one.waiting < BACKLOG // 2
    others = range(number, number + len(withdrawn) // 3)
    assert all(one.send(request(of, size)) for of in others)
    got = [frame.id for frame in carry()]
    assert got == [of for of in range(others.stop) if of not in withdrawn]
    assert one.waiting == 0 and not one._requests and one.give_up() == 0


def test_requests_that_are_withdrawn_do_not_count_as_sent(pair):
    """Those that wait before a mark, or after it."""
    one, _, _, carry = pair
    assert all(one.send(request(number, 60_000)) for number in range(40))
    mark = one.mark()
    assert all(one.send(request(number, 60_000)) for number in range(40, 200))
    for number in range(30, 200):
        one.withdraw(number)
    assert not one.has_sent(mark)
    while not one.has_sent(mark):
        assert carry(1)
    assert not one._requests and {frame.id for frame in carry()} <= set(range(30))


@pytest.mark.parametrize("seed", range(5))
def test_how_many_messages_that_nobody_answers_have_not_arrived(seed):
    """Of all that have been sent before a report or a Ping, it is exact."""
    rng, own, ends = random.Random(seed), window.Window(), deque()
    sent = taken = reported = 0
    reports, pings = deque(), deque()
    for _ in range(3000):
        if rng.random() < 0.6:
            size, news = rng.choice((300, 5_000, 60_000)), rng.random() < 0.5
            if not own.takes(size, news, 1 << 20):
                continue
            sent += size
            ends += [sent] * news
            taken += size
            if taken - reported >= window.REPORT:       # as the other side counts them
                reports.append(taken - reported)
                reported = taken
        elif rng.random() < 0.3:
            pings.append(own.position())
        elif reports or pings:
            if pings and (not reports or rng.random() < 0.5):
                own.confirm(end := pings.popleft())
            else:
                own.took(reports.popleft(), 0.0)
                end = own.taken
            while ends and ends[0] <= end:
                ends.popleft()
        assert own.news == len(ends)
    assert own.forget() == len(ends) and own.news == 0


@pytest.mark.parametrize("size", [1000, 30_000, 200_000])
def test_what_was_given_before_a_mark_has_been_sent(pair, size):
    """Whatever has been given since."""
    one, _, wire, carry = pair
    for number in range(3_000_000 // size):
        publish(one, number, size)
    for number in range(3):
        assert one.send(request(1 << 20, 150_000))
    mark = one.mark()
    assert not one.has_sent(mark)
    arrived = set()
    while not one.has_sent(mark):
        number += 1
        publish(one, (1 << 20) + number, size)
        arrived |= {frame.seq for frame in carry(5) if isinstance(frame, frames.Publish)}
    assert one.waiting
    arrived |= {frame.seq for frame in carry(len(wire)) if isinstance(frame, frames.Publish)}
    assert arrived >= set(range(3_000_000 // size))


# -- the socket ------------------------------------------------------------------------------------


def test_one_task_alone_empties_what_waits_for_the_socket(monkeypatch):
    """Also if what it makes room for finds the socket full again."""
    sent, tasks = [], []

    class Socket:
        def send_parts(self, parts, timeout):
            raise SendTimeout("full")

        async def asend_parts(self, parts):
            sent.append(parts[1])

    class Node:
        key = static = None

        class loop:  # noqa: N801
            spawn = staticmethod(lambda function, *args: tasks.append(function(*args)))

    class Links:
        node, socket = Node, Socket()

    class Quiet:
        waiting = 0

    monkeypatch.setattr(link_module, "Session", lambda *args: Quiet())
    link = Link(Links, b"", 1, None)
    link._raw(b"1")
    answers = [b"2", b"3"]

    class Answers:
        def __bool__(self):
            return bool(answers)

        def go_on(self):
            link._raw(answers.pop(0))

    link.answers = Answers()

    async def main():
        while tasks:
            await tasks.pop(0)
            assert not tasks

    asyncio.run(main())
    assert sent == [b"1", b"2", b"3"] and not link.unsent_bytes
    link._raw(b"4")
    assert len(tasks) == 1
    tasks.pop().close()
