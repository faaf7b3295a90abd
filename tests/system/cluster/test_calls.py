"""Calls over real processes: requests, surveys, topics, tunnels, errors and deadlines."""

import time
from collections import Counter

import pytest

import mqcore as mq
from mqcore import cluster


def closed(accounts):
    """The law of a node's requests."""
    return accounts["asked"] == accounts["pending"] + sum(accounts[name] for name in (
        "answered", "faults", "timeouts", "overloaded", "lost", "unserved", "cancelled"))


@pytest.mark.parametrize("loop", ["--trio", None])
def test_a_request_is_answered_by_another_process(run, key, nodes, loop):
    server = nodes(*([loop] if loop else []))

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            assert await net.arequest("work", b"pid") == b"%d" % server.process.pid
            assert [member.url for member in net.members("work")] == [nodes.seed]
            assert closed(net.stats()["requests"]) and net.stats()["requests"]["answered"] == 1
        assert net.closed
        with pytest.raises(cluster.NodeClosed):
            await net.arequest("work", b"pid")

    run(main)


def test_what_a_request_carries(once, key, nodes):
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            assert await net.arequest("work", b"about", headers={"user": b"eve"}, trace="t-1",
                                      timeout=None) == b"([('user', b'eve')], 't-1', True)"
            big = bytes(range(256)) * 12_000
            assert await net.arequest("work", b"echo " + big, timeout=30) == big
            assert await net.arequest("work", bytearray(b"echo x")) == b"x"
            with pytest.raises(mq.UsageError, match="must be bytes"):
                await net.arequest("work", "text")

    once(main)


def test_errors_and_deadlines(run, key, nodes):
    nodes("--concurrency", "1", "--queue-bytes", "100")

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            with pytest.raises(cluster.NoSuchService, match="no live member") as none:
                await net.arequest("nothing", b"")
            assert none.value.service == "nothing" and none.value.hint
            with pytest.raises(cluster.RemoteError, match="too bad") as fault:
                await net.arequest("work", b"fail too bad")
            assert fault.value.kind == "LookupError"
            begun = time.monotonic()
            with pytest.raises(cluster.RequestTimeout) as late:
                await net.arequest("work", b"sleep 0.5", timeout=0.1)
            assert isinstance(late.value, TimeoutError) and time.monotonic() - begun < 30
            # the one place is taken: this one expires in the queue and is never run
            with pytest.raises(cluster.RequestTimeout):
                await net.arequest("work", b"pid", timeout=0.05)
            with pytest.raises(cluster.Overloaded):
                await net.arequest("work", b"pid" + bytes(200), timeout=20)
            assert await net.arequest("work", b"count", timeout=20) == b"3"
            accounts = net.stats()["requests"]
            assert closed(accounts)
            assert (accounts["timeouts"], accounts["overloaded"], accounts["faults"],
                    accounts["unserved"]) == (2, 1, 1, 1)

    run(main)


def test_a_wrong_key_is_named_and_learns_nothing(once, key, nodes):
    nodes()

    async def main():
        with pytest.raises(cluster.KeyRejected, match="does not hold this cluster's key"):
            async with cluster.ajoin(cluster.Key.generate(), seeds=[nodes.seed]):
                raise AssertionError("it has joined")
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            assert await net.arequest("work", b"pid")

    once(main)


def test_rotation_without_a_pause(once, key, nodes):
    """Nodes with the key of one step before or after reach each other."""
    nodes()

    async def main():
        newer = key.accepting_new()
        async with cluster.ajoin(newer, seeds=[nodes.seed]) as middle:
            offering = newer.offering(newer.newest)
            async with cluster.ajoin(offering, seeds=[middle.url]) as last:
                assert last.members("work") or await last.await_members(n=2, timeout=10)
                async with middle.aserve("here", Reverse()):
                    assert await last.arequest("here", b"abc") == b"cba"

    once(main)


def test_a_banned_node_is_refused(once, key):
    async def main():
        async with cluster.ajoin(key) as bad:
            async with cluster.ajoin(key.banning(bytes.fromhex(bad.id)), seeds=[bad.url]) as good:
                assert await good.until(lambda: good.stats()["dropped"].get("banned"), 10)
                assert len(good.members()) == 1 and not bad.members("x")

    once(main)


def test_alone_says_why(once, key):
    async def main():
        async with cluster.ajoin(key, seeds=["tcp://127.0.0.1:1"]) as net:
            assert "this node is alone" in net.explain() and "tcp://127.0.0.1:1" in net.explain()
            with pytest.raises(mq.WaitTimeout, match="0 of 2 members of 'x'"):
                await net.await_members("x", 2, timeout=0.05)

    once(main)


def test_broadcast_and_survey(run, key, nodes):
    three = [nodes(), nodes(), nodes()]
    pids = {b"%d" % one.process.pid for one in three}

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 3, timeout=20)
            assert await net.abroadcast("work", b"reload") == 3
            survey = net.asurvey("work", b"who?", deadline=20)
            assert {reply.body async for reply in survey} == pids and survey.asked == 3
            begun = time.monotonic()
            assert [reply async for reply in net.asurvey("work", b"silent", deadline=20)] == []
            assert time.monotonic() - begun < 15        # all have answered: no wait for the end
            assert [reply async for reply in net.asurvey("none", b"", deadline=20)] == []

    run(main)


def test_topics_with_wildcards(run, key, nodes):
    one, two = nodes("--topic", "px.>"), nodes("--topic", "*.EUR")

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 2, timeout=20)
            async with net.asubscribe("px.EUR", "px.*.bid") as feed:
                assert await net.apublish("px.EUR", b"1") == 3
                assert await net.apublish("px.EUR.bid", b"2") == 2
                assert await net.apublish("px", b"3") == 0
                assert await net.apublish("fx.EUR", b"4") == 1
                got = [await feed.arecv(timeout=10) for _ in range(2)]
                assert [(message.topic, message.body) for message in got] == [
                    ("px.EUR", b"1"), ("px.EUR.bid", b"2")]
                assert got[0].peer.me
            assert await net.apublish("px.EUR", b"5") == 2
            with pytest.raises(mq.UsageError, match="wildcard"):
                await net.apublish("px.*", b"")
            with pytest.raises(mq.UsageError, match="no topic"):
                await net.apublish("px..x", b"")
            assert net.stats()["topics"]["unmatched"] == 1

    run(main)
    assert [one.line() for _ in range(3)] == ["px.EUR 1", "px.EUR.bid 2", "px.EUR 5"]
    assert [two.line() for _ in range(3)] == ["px.EUR 1", "fx.EUR 4", "px.EUR 5"]


def test_a_group_shares_messages_in_order_of_each_member(once, key, nodes):
    programs = [nodes("--topic", "job.*", "--group", "workers") for _ in range(3)]

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 3, timeout=20)
            for number in range(90):
                assert await net.apublish("job.x", b"%d" % number) == 1
            # the ping travels behind all publications, on every link
            assert await net.barrier()

    once(main)
    outputs = []
    for program in programs:
        program.process.stdin.close()
        program.process.stdin = None
        status, out, err = program.result()
        assert status == 0, err
        outputs.append([int(line.split()[1]) for line in out.splitlines()])
    assert sorted(number for output in outputs for number in output) == list(range(90))
    assert all(output == sorted(output) and output for output in outputs)


def test_tunnels_keep_boundaries_and_close_by_halves(run, key, nodes):
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            async with net.atunnel("work", timeout=10) as tunnel:
                sizes = (0, 1, 40_000, 3_000_000)       # the last one is longer than the window
                for size in sizes:
                    await tunnel.asend(bytes(size))
                    assert len(await tunnel.arecv(timeout=20)) == size
                await tunnel.asend_eof()
                assert [message async for message in tunnel] == [b"end"]
                with pytest.raises(cluster.TunnelClosed) as over:
                    await tunnel.arecv()
                assert over.value.reason == "eof"
            with pytest.raises(cluster.NoSuchService):
                async with net.atunnel("nothing"):
                    pass
            assert net.stats()["tunnels"]["open"] == 0

    run(main)


def test_a_slow_reader_stops_the_sender_of_a_tunnel(run, key, nodes):
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            async with net.atunnel("work", timeout=10) as tunnel:
                with pytest.raises(mq.SendTimeout):
                    for _ in range(1000):       # nobody reads the echoes: windows fill up
                        await tunnel.asend(bytes(32_768), timeout=0.3)
                assert tunnel._flow.sent < 200
                assert await net.arequest("work", b"echo still", timeout=20) == b"still"

    run(main)


def test_a_tunnel_ends_with_its_member(once, key, nodes):
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            async with net.atunnel("work", timeout=10) as tunnel:
                await tunnel.asend(b"die")
                with pytest.raises(cluster.TunnelClosed) as lost:
                    await tunnel.arecv(timeout=20)
                assert lost.value.reason == "lost"

    once(main)


def test_large_bodies_do_not_hold_up_small_ones(once, key, nodes):
    """While the second half of a large one is under way, small ones are asked for and answered."""
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            async def beside_a_large_one():
                large, small = [], []

                async def ask_large():
                    large.append(time.monotonic())
                    answer = await net.arequest("work", b"big %d" % (30 << 20), timeout=50)
                    large.append(time.monotonic())
                    assert len(answer) == 30 << 20

                net.loop.spawn(ask_large)
                while len(large) < 2:
                    asked = time.monotonic()
                    await net.arequest("work", b"echo small", timeout=50)
                    small.append((asked, time.monotonic()))
                begin, end = large
                return any((begin + end) / 2 < asked and heard < end for asked, heard in small)

            for _ in range(10):     # a busy machine may have no time for small ones just then
                if await beside_a_large_one():
                    return
            raise AssertionError("no small one was answered")

    once(main)


class Reverse:
    async def request(self, req):
        return req.body[::-1]


class Plain:
    """Methods that block run in threads."""

    def request(self, req):
        return req.body.upper()

    def tunnel(self, tun):
        for message in tun:
            tun.send(message * 2)


def test_blocking_twins(key, nodes):
    nodes("--topic", "a.*")
    with cluster.join(key, seeds=nodes.seed) as net:
        assert net.request("work", b"echo 1", timeout=10) == b"1"
        assert net.broadcast("work", b"") == 1
        assert len(list(net.survey("work", b"who", deadline=20))) == 1
        with net.serve("plain", Plain()), net.subscribe("a.b") as feed:
            assert net.request("plain", b"abc", timeout=10) == b"ABC"
            assert net.publish("a.b", b"x") == 2 and feed.recv(timeout=10).body == b"x"
            with net.tunnel("plain", timeout=10) as tunnel:
                tunnel.send(b"ab")
                assert tunnel.recv(timeout=10) == b"abab"
                tunnel.send_eof()
                assert list(tunnel) == []
        with pytest.raises(cluster.NoSuchService):
            net.request("plain", b"")
        assert net.drain(5)


def test_a_blocking_call_on_the_loop_is_refused(run, key):
    async def main():
        async with cluster.ajoin(key) as net:
            with pytest.raises(mq.StateError, match="event loop"):
                net.request("x", b"")

    run(main)


def test_every_call_has_its_twin():
    names = {name for name in dir(cluster.Node) if not name.startswith("_")}
    awaitable = {"arequest", "abroadcast", "asurvey", "apublish", "asubscribe", "atunnel", "aserve",
                 "aadopt", "adrain", "aclose", "await_members"}
    assert awaitable <= names
    assert {name.removeprefix("a") for name in awaitable} <= names


def test_a_plain_rep_is_adopted(run, key, nodes):
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            with mq.Rep(bind="tcp://127.0.0.1:0") as rep:

                async def answer():
                    while True:
                        message = await rep.arecv_msg()
                        await message.areply(b"rep " + message.body)

                stop = net.loop.spawn(answer)
                adopted = await net.aadopt("old", rep.endpoints[0].url)
                await net.await_members("old", timeout=10)
                assert await net.arequest("old", b"hi", timeout=10) == b"rep hi"
                stop()
            # the socket is gone, and so is the offer
            assert await net.until(lambda: not net.members("old"), 20)
            await adopted.aclose()

    run(main)


def test_load_spreads_and_keys_stick(once, key, nodes):
    for _ in range(3):
        nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 3, timeout=20)
            hits = Counter()

            async def ask():
                hits[await net.arequest("work", b"sleep 0.2", timeout=30)] += 1

            for _ in range(60):
                net.loop.spawn(ask)
            assert await net.until(lambda: hits.total() == 60, 50)
            assert len(hits) == 3
            sticky = {await net.arequest("work", b"pid", key="user-7", timeout=20)
                      for _ in range(20)}
            assert len(sticky) == 1

    once(main)


def test_the_own_zone_comes_first(once, key, nodes):
    near = nodes("--zone", "eu")
    nodes("--zone", "us")

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed], zone="eu") as net:
            await net.await_members("work", 2, timeout=20)
            hits = {await net.arequest("work", b"pid", timeout=20) for _ in range(30)}
            assert hits == {b"%d" % near.process.pid}

    once(main)


def test_without_udp(once, key, nodes):
    nodes("--no-udp")
    nodes("--no-udp")

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed], udp=False) as net:
            await net.await_members("work", 2, timeout=20)
            assert await net.until(lambda: net.stats()["membership"]["counters"].get("ack_in"), 20)
            assert net.stats()["membership"]["members"] == 3

    once(main)


def test_a_socket_reaches_a_service_by_name(key, tmp_path):
    with cluster.join(key) as net, mq.Rep(bind="tcp://127.0.0.1:0") as rep:
        with net.serve("plain", Plain(), urls=(rep.endpoints[0].url,)):
            name = f"cluster://plain?key={tmp_path}/test.key&seeds={net.url}&refresh=1"
            with mq.Req(connect=name) as req:
                req.send(b"by name")
                message = rep.recv_msg(timeout=30)
                message.reply(b"yes")
                assert message.body == b"by name" and req.recv(timeout=30) == b"yes"
        bad = f"cluster://none?key={tmp_path}/test.key&seeds=tcp://127.0.0.1:1"
        with mq.Req(connect=bad) as req, pytest.raises(mq.Timeout):
            req.request(b"x", timeout=0.5)


def test_a_node_calls_itself(run, key):
    class All(Reverse):
        async def broadcast(self, msg):
            return msg.body

        async def tunnel(self, tun):
            async for message in tun:
                await tun.asend(message * 2)

    async def main():
        async with cluster.ajoin(key) as net, net.aserve("all", All()):
            assert await net.arequest("all", b"abc") == b"cba"
            assert await net.abroadcast("all", b"x") == 1
            assert [reply.body async for reply in net.asurvey("all", b"y", deadline=20)] == [b"y"]
            async with net.atunnel("all", timeout=10) as tunnel:
                await tunnel.asend(b"ab")
                assert await tunnel.arecv(timeout=10) == b"abab"
                await tunnel.asend_eof()
                assert [message async for message in tunnel] == []
            with pytest.raises(mq.StateError, match="serves 'all' already"):
                async with net.aserve("all", All()):
                    pass

    run(main)


def test_cancelled_requests_do_not_run(once, key, nodes):
    nodes("--concurrency", "1")

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            first = net.loop.spawn(net.arequest, "work", b"sleep 0.5")
            second = net.loop.spawn(net.arequest, "work", b"pid")
            assert await net.until(lambda: net.requests.pending == 2, 10)
            assert await net.barrier()
            second()
            assert await net.arequest("work", b"count", timeout=20) == b"2"
            assert net.stats()["requests"]["cancelled"] == 1 and closed(net.stats()["requests"])
            first()

    once(main)


class Full:
    async def request(self, req):
        return b"full"


class Deaf:
    async def broadcast(self, msg):
        return b"heard"


def test_members_without_requests(run, key):
    """The error says so, for one's own node as for others. One that has them is found."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("it", Deaf()):
            await two.await_members("it", timeout=20)
            for net in one, two:
                with pytest.raises(cluster.Overloaded, match="that was asked") as no:
                    await net.arequest("it", b"x", timeout=20)
                assert no.value.tried == 1 and "method request" in no.value.hint
                assert net.requests.counts["overloaded"] == 1
            async with two.aserve("it", Full(), concurrency=1, queue_bytes=0) as busy:
                await one.await_members("it", 2, timeout=20)
                assert await one.arequest("it", b"x", timeout=20) == b"full"
                busy.requests.running += 1
                with pytest.raises(cluster.Overloaded, match="all 2 .* take none"):
                    await one.arequest("it", b"x", timeout=20)
                busy.requests.running -= 1

    run(main)
