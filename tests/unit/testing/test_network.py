"""The simulated network: equal seeds give equal traces, and time is virtual.

MQCORE_ROUNDS=1000 tries so many seeds (`make seeds`).
"""

import asyncio
import contextlib
import math
import os
import threading
from random import Random

import pytest

import mqcore as mq
from mqcore.testing import network

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "40"))
HOUR = 3600.0

pytestmark = pytest.mark.usefixtures("mq_leaks")


# -- determinism -----------------------------------------------------------------------------------


def blocking(net, chance):
    """Requests and a pipeline between two hosts, in blocking calls."""
    a, b = net.host("a"), net.host("b")
    rep, req = a.socket("rep", bind="sim://a/echo"), b.socket("req", connect="sim://a/echo")
    pull, push = b.socket("pull", bind="sim://b/work"), a.socket("push", connect="sim://b/work")
    for number in range(3):
        req.send(b"q" * chance.randrange(1, 3000))
        rep.recv_msg(timeout=20).reply(b"%d" % number)
        net.note(f"answer {req.recv(timeout=20).decode()}")
        net.run(seconds=chance.random())
    for _ in range(20):
        push.send(bytes(chance.randrange(5000)))
    net.note(f"{sum(len(pull.recv(timeout=20)) for _ in range(20))} bytes")


def tasks(net, chance):
    """The same with tasks, and a publisher with two subscribers, one of them slow."""
    pause = chance.random()

    async def server():
        rep = net.host("a").socket("rep", bind="sim://a/echo")
        while True:
            question = await rep.arecv_msg()
            await asyncio.sleep(pause)
            await question.areply(b"yes")

    async def client(name):
        req = net.host(name).socket("req", connect="sim://a/echo")
        for _ in range(3):
            await req.asend(b"?")
            await req.arecv(timeout=20)
            net.note(f"{name} has an answer")

    async def main():
        asked = asyncio.create_task(server())
        pub = net.host("a").socket("pub", bind="sim://a/news")
        subs = [net.host(name).socket("sub", topics=b"", connect="sim://a/news") for name in "bc"]
        await pub.await_subscribers(b"", 2, timeout=20)
        net.pause("c", at=net.now + pause, until=net.now + 2 * pause)
        await pub.asend_many(b"%d" % i for i in range(30))
        for sub in subs:
            net.note(" ".join([(await sub.arecv(timeout=20)).decode() for _ in range(30)]))
        await asyncio.gather(client("b"), client("c"))
        asked.cancel()

    net.run_async(main())


def trace(seed, scenario):
    chance = Random(seed)
    with network.Network(seed, delay=0.01, jitter=0.01 * chance.random(),
                         loss=0.2 * chance.random(), reorder=0.1,
                         rate=chance.choice((0, 20_000)), give_up=2 + 3 * chance.random(),
                         reconnect=0.1) as net:
        begin = chance.random()
        net.partition({"a"}, {"b"}, at=begin, heal=begin + 5 * chance.random())
        try:
            scenario(net, chance)
        except mq.Error as error:      # a connection that breaks may lose messages
            net.note(type(error).__name__)
        net.run(seconds=1)
        return net.trace()


def test_equal_seeds_give_equal_traces():
    traces = set()
    for seed in range(ROUNDS):
        scenario = tasks if seed % 2 else blocking
        first, second = trace(seed, scenario), trace(seed, scenario)
        assert first == second, f"seed {seed}"
        traces.add(tuple(first))
    assert len(traces) == ROUNDS
    seen = {event.what for found in traces for event in found}
    assert seen >= {"lose", "delay", "overtake", "hold", "heal", "note", "connect"}


# -- time ------------------------------------------------------------------------------------------


def test_a_timeout_passes_in_virtual_time():
    with network.Network() as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=HOUR)
        assert net.now == HOUR
        net.run(seconds=5)
        net.run(until=2 * HOUR)
        assert net.now == 2 * HOUR


def test_delay_and_rate():
    with network.Network(delay=0.25, rate=1000) as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        push = net.host("b").socket("push", connect="sim://a/x")
        push.wait_peers(timeout=60)
        sent = net.now
        push.send(bytes(2000))
        assert len(pull.recv(timeout=60)) == 2000
        assert 2.25 <= net.now - sent < 2.3


def test_heartbeats_go_by_the_clock_of_the_network():
    with network.Network(heartbeat=10.0, heartbeat_timeout=5.0, give_up=HOUR) as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        push = net.host("b").socket("push", connect="sim://a/x")
        push.wait_peers(timeout=60)
        pull.wait_peers(timeout=60)
        net.partition({"a"}, {"b"})
        net.run(seconds=9)
        assert pull.peers() and push.peers()
        net.run(seconds=30)
        assert not pull.peers() and not push.peers()
        net.heal()
        push.wait_peers(timeout=60)


def test_a_survey_ends_in_virtual_time():
    with network.Network(delay=1.0) as net:
        asks = net.host("a").socket("surveyor", bind="sim://a/x", deadline=2.5)
        answers = net.host("b").socket("respondent", connect="sim://a/x")
        asks.wait_peers(timeout=60)
        begun = net.now
        asks.send(b"?")
        answers.recv_msg(timeout=60).reply(b"in time")
        assert asks.recv() == b"in time"
        with pytest.raises(mq.RecvTimeout):
            asks.recv()
        assert net.now == begun + 2.5


def test_poll():
    with network.Network(delay=0.5) as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        push = net.host("b").socket("push", connect="sim://a/x")
        assert not mq.poll([pull], timeout=60) and net.now == 60
        push.send(b"x")
        assert mq.poll([pull], timeout=60) and net.now == 60.5


# -- what befalls a connection ---------------------------------------------------------------------


def pipeline(net):
    pull = net.host("a").socket("pull", bind="sim://a/x")
    push = net.host("b").socket("push", connect="sim://a/x")
    push.wait_peers(timeout=HOUR)
    return push, pull


def test_a_partition_holds_what_is_sent_until_it_heals():
    with network.Network() as net:
        push, pull = pipeline(net)
        net.partition({"a"}, {"b"}, heal=net.now + 10)
        heals = net.now + 10
        push.send(b"held")
        assert pull.recv(timeout=60) == b"held"
        assert heals <= net.now < heals + 1
        assert net.counts["held"] and not net.counts["broken"]


def test_a_long_partition_breaks_the_connection_and_counts_it():
    with network.Network(give_up=5) as net:
        push, pull = pipeline(net)
        net.partition({"a"}, {"b"})
        push.send(b"held")
        net.run(seconds=10)
        assert net.counts["broken"] == 1 and not push.peers()
        assert "break timeout" in net.explain() or net.trace()[-1].what
        net.heal()
        push.wait_peers(timeout=60)
        push.send(b"again")
        assert pull.recv(timeout=60) in (b"held", b"again")


def test_loss_delays_and_never_loses_or_reorders_a_stream():
    with network.Network(3, loss=0.3, reorder=0.3, delay=0.01) as net:
        push, pull = pipeline(net)
        for number in range(100):
            push.send(b"%d" % number)
            net.run(seconds=0.05)
        got = [int(pull.recv(timeout=HOUR)) for _ in range(100)]
        assert got == list(range(100)) or net.counts["broken"]
        assert net.counts["lost"] and net.counts["delayed"] and net.counts["reordered"]


def test_where_everything_is_lost_no_connection_comes():
    with network.Network(loss=1.0) as net:
        net.host("a").socket("pull", bind="sim://a/x")
        push = net.host("b").socket("push", connect="sim://a/x")
        with pytest.raises(mq.WaitTimeout):
            push.wait_peers(timeout=60)
        assert net.counts["lost"] > 5


def test_a_refused_connection_is_tried_again():
    with network.Network() as net:
        push = net.host("b").socket("push", connect="sim://a/x")
        net.run(seconds=5)
        assert [event for event in net.trace() if event.what == "refuse"]
        pull = net.host("a").socket("pull", bind="sim://a/x")
        push.send(b"x", timeout=60)
        assert pull.recv(timeout=60) == b"x"


def test_a_paused_host_makes_its_peer_wait():
    with network.Network(recv_hwm=10, send_hwm=10) as net:
        push, pull = pipeline(net)
        net.pause("a")
        with pytest.raises(mq.SendTimeout):
            for _ in range(1000):
                push.send(bytes(50_000), timeout=5)
        net.go("a")
        push.send(b"x", timeout=5)
        assert len(pull.recv(timeout=5)) == 50_000


def test_a_partition_ends_by_its_own_end_and_not_by_that_of_another():
    with network.Network() as net:
        push, pull = pipeline(net)
        begun = net.now
        net.partition({"a"}, {"b"}, heal=begun + 4)
        net.run(seconds=1)
        net.heal()
        net.partition({"a"}, {"b"}, heal=begun + 8)
        push.send(b"held")
        assert pull.recv(timeout=60) == b"held" and net.now >= begun + 8


def test_pauses_overlap_and_go_ends_those_that_have_begun():
    with network.Network() as net:
        push, pull = pipeline(net)
        begun = net.now
        net.pause("a", until=begun + 10)
        net.pause("a", at=begun + 5, until=begun + 20)
        push.send(b"1")
        assert pull.recv(timeout=60) == b"1" and net.now == begun + 20
        net.pause("a", until=begun + 30)
        net.go("a")
        net.pause("a", until=begun + 40)
        push.send(b"2")
        assert pull.recv(timeout=60) == b"2" and net.now == begun + 40


def test_no_byte_leaves_or_reaches_a_paused_host():
    async def main(net):
        rep = net.host("a").socket("rep", bind="sim://a/x")
        req = net.host("b").socket("req", connect="sim://a/x")
        await req.await_peers(timeout=60)
        begun = net.now
        net.pause("a", until=begun + 10)
        await req.asend(b"?")
        question = await rep.arecv_msg(timeout=60)      # a task of the paused host
        assert net.now >= begun + 10
        net.pause("a", until=begun + 20)
        await question.areply(b"yes")
        assert await req.arecv(timeout=60) == b"yes" and net.now >= begun + 20

    with network.Network() as net:
        net.run_async(main(net))


def test_a_partition_also_holds_where_the_server_was_made_after_the_attempt_to_connect():
    with network.Network(delay=0.1) as net:
        push = net.host("b").socket("push", connect="sim://a/x")
        net.run(seconds=0.05)
        assert net.trace()[-1].what == "attempt"
        pull = net.host("a").socket("pull", bind="sim://a/x")
        push.wait_peers(timeout=60)
        pull.wait_peers(timeout=60)
        heals = net.now + 10
        net.partition({"a"}, {"b"}, heal=heals)
        push.send(b"held")
        assert pull.recv(timeout=60) == b"held" and net.now >= heals


def test_no_connection_comes_about_across_a_partition():
    with network.Network(delay=1.0) as net:
        net.host("a").socket("pull", bind="sim://a/x")
        push = net.host("b").socket("push", connect="sim://a/x")
        net.partition({"a"}, {"b"}, at=1.5, heal=30)    # the server has accepted it
        push.wait_peers(timeout=300)
        made = [event.time for event in net.trace() if event.what == "connect"]
        assert made and min(made) >= 30 and net.counts["held"] and not net.counts["lost"]


@pytest.mark.parametrize("call", [
    lambda net: net.run(seconds=-1), lambda net: net.run(until=math.nan),
    lambda net: net.run(seconds=math.inf), lambda net: net.at(math.nan, print),
    lambda net: net.pause("a", at=-1), lambda net: net.pause("a", at=5, until=4),
    lambda net: net.partition({"a"}, {"b"}, at=2, heal=1),
    lambda net: net.partition({"a"}, {"nobody"}), lambda net: net.go("nobody"),
    lambda net: net.partition("a", {"b"}), lambda net: net.at("soon", print)])
def test_misuse_is_named(call):
    with network.Network() as net:
        net.host("a"), net.host("b")
        with pytest.raises(mq.UsageError):
            call(net)
        net.run(seconds=10)
        assert net.now == 10 and not net.trace()


def test_cut():
    with network.Network() as net:
        push, pull = pipeline(net)
        assert net.cut() == 1
        net.run(seconds=1)
        push.send(b"over the next connection", timeout=60)
        assert pull.recv(timeout=60) == b"over the next connection"
        assert net.counts["broken"] == 1


# -- programs --------------------------------------------------------------------------------------


def test_timeouts_of_tasks_are_virtual():
    async def main(net):
        pull = net.host("a").socket("pull", bind="sim://a/x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await pull.arecv()
        await asyncio.sleep(100)
        with pytest.raises(mq.RecvTimeout):
            await pull.arecv(timeout=100)
        await pull.aclose()

    with network.Network() as net:
        net.run_async(main(net))
        assert net.now == pytest.approx(300)


def shop(seed):
    """A customer who sends an order again when no answer comes: the bug of many programs. What the
    server booked, and the trace."""
    booked = []

    async def server(host):
        rep = host.socket("rep", bind="sim://shop/orders")
        while True:
            order = await rep.arecv_msg()
            booked.append(order.body)
            with contextlib.suppress(mq.NoSuchPeer):
                await order.areply(b"booked")

    async def main(net):
        task = asyncio.create_task(server(net.host("shop")))
        for _ in range(10):
            req = net.host("home").socket("req", connect="sim://shop/orders")
            try:
                await req.asend(b"one cake", timeout=0.5)
                await req.arecv(timeout=0.5)
                break
            except mq.Timeout:
                await req.aclose()
        await asyncio.sleep(5)
        task.cancel()

    with network.Network(seed, delay=0.05, loss=0.1) as net:
        net.run_async(main(net))
        return len(booked), net.digest()


def test_a_seed_finds_the_retry_that_repeats_its_work_and_replays_it():
    found = next(seed for seed in range(200) if shop(seed)[0] > 1)
    assert shop(found) == shop(found) and shop(found)[0] > 1
    assert shop(found)[0] != 1 and any(shop(seed)[0] == 1 for seed in range(10))


def test_functions_at_a_moment():
    with network.Network() as net:
        push, pull = pipeline(net)
        net.at(7, push.send, b"on time")
        assert pull.recv(timeout=60) == b"on time" and 7 <= net.now < 7.1


# -- errors ----------------------------------------------------------------------------------------


def test_a_call_that_waits_for_ever_is_an_error():
    with network.Network() as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        with pytest.raises(network.Stuck, match=r"a call without a timeout waits\nseed 0, 3600 s"):
            pull.recv()
        with pytest.raises(network.Stuck):
            mq.poll([pull])
        with pytest.raises(network.Stuck, match="the tasks have not ended within 100 s"):
            net.run_async(pull.arecv(), limit=100)


def test_other_threads_are_refused():
    with network.Network() as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        caught = []

        def other():
            try:
                pull.recv(timeout=1)
            except mq.StateError as error:
                caught.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert "belongs to the thread that made it" in caught[0]


def test_a_callback_may_not_wait():
    with network.Network() as net:
        pull = net.host("a").socket("pull", bind="sim://a/x")
        net.at(1, lambda: pull.recv(timeout=1))
        with pytest.raises(mq.StateError, match="inside a callback"):
            net.run(until=2)


@pytest.mark.parametrize("wrong", [
    {"delay": -1}, {"loss": 2}, {"loss": "x"}, {"delay": 0.1, "jitter": 0.2}, {"rate": True}])
def test_wrong_numbers(wrong):
    with pytest.raises(mq.UsageError):
        network.Network(**wrong)


def test_wrong_calls():
    with network.Network() as net:
        host = net.host("a")
        for url, error in (("sim://b/x", mq.BindError), ("sim://a", mq.AddressError),
                           ("tcp://127.0.0.1:0", mq.UsageError)):
            with pytest.raises(error):
                host.socket("pull", bind=url)
        host.socket("pull", bind="sim://a/x")
        with pytest.raises(mq.AddressInUse):
            host.socket("pull", bind="sim://a/x")
        for call in (lambda: net.host("a/b"), lambda: net.partition("a", {"b"}), net.run,
                     lambda: net.pause("z"), lambda: net.run(until=1, seconds=1),
                     lambda: net.partition({"a"}, {"b"}, at=2, heal=1)):
            with pytest.raises(mq.UsageError):
                call()
        with pytest.raises(mq.StateError, match="runs a simulated network already"):
            network.Network()
        with pytest.raises(mq.StateError, match="this thread runs a simulated network"):
            mq.Context().socket("pull")
    with pytest.raises(mq.StateError, match="closed"):
        net.host("a")
    net.close()
