"""Plain REP sockets that a node offers as members: they hang, die with requests, and come back."""

import pytest
from programs import starter

import mqcore as mq
from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import adopt

LIMIT = 50.0
ZMQ = """if True:
    import zmq
    rep = zmq.Context().socket(zmq.REP)
    rep.bind("tcp://127.0.0.1:*")
    print(rep.last_endpoint.decode(), flush=True)
    while True:
        rep.send(rep.recv() + b"!")
"""
NNG = """if True:
    from pynng import Rep0
    rep = Rep0(listen="tcp://127.0.0.1:0")
    print(f"tcp://{rep.listeners[0].local_address}?wire=sp", flush=True)
    while True:
        rep.send(rep.recv() + b"!")
"""


class Echo:
    async def request(self, req):
        return b"ours"


async def ask(net, found, body, **how):
    try:
        found.append(await net.arequest("old", body, **how))
    except Exception as error:
        found.append(error)


def test_a_request_that_is_given_up_keeps_no_place_at_a_rep_that_hangs(run, key, monkeypatch):
    monkeypatch.setattr(adopt, "GRACE", LIMIT)

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            with mq.Rep(bind="tcp://127.0.0.1:0") as rep:
                async with await one.aadopt("old", rep.endpoints[0].url) as old:
                    await two.await_members("old", timeout=LIMIT)
                    stop = two.loop.spawn(two.arequest, "old", b"1")
                    await rep.arecv_msg(timeout=LIMIT)      # and nothing comes back
                    gate = old.service.requests
                    assert gate.running == 1
                    stop()
                    assert await two.until(lambda: not gate.running, LIMIT)
                    found = []
                    two.loop.spawn(lambda: ask(two, found, b"2", timeout=LIMIT))
                    message = await rep.arecv_msg(timeout=LIMIT)
                    message.reply(message.body + b"!")
                    assert await two.until(lambda: found, LIMIT)
                    assert found == [b"2!"] and "old" in one.services

    run(main)


def test_a_rep_that_dies_with_requests(run, key):
    """The one that it had may have run. Those that wait have not: others get them."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            rep = mq.Rep(bind="tcp://127.0.0.1:0")
            url = rep.endpoints[0].url
            await one.aadopt("old", url)
            await two.await_members("old", timeout=LIMIT)
            found, repeated = [], []
            two.loop.spawn(lambda: ask(two, found, b"1", timeout=LIMIT))
            await rep.arecv_msg(timeout=LIMIT)
            for _ in range(2):
                two.loop.spawn(lambda: ask(two, repeated, b"2", timeout=LIMIT))
            assert await two.until(lambda: one.services["old"].requests.load == 3, LIMIT)
            async with two.aserve("old", Echo()):
                await rep.aclose(0)
                assert await two.until(lambda: found and len(repeated) == 2, LIMIT)
                assert isinstance(found[0], cluster.MemberLost) and repeated == [b"ours"] * 2
            assert await two.until(lambda: not two.members("old"), LIMIT)
            with mq.Rep(bind=url) as rep:
                await two.await_members("old", timeout=LIMIT)
                two.loop.spawn(lambda: ask(two, found, b"3", timeout=LIMIT))
                (await rep.arecv_msg(timeout=LIMIT)).reply(b"back")
                assert await two.until(lambda: len(found) == 2, LIMIT)
                assert found[1] == b"back"

    run(main)


def test_a_rep_that_is_late(run, key):
    """Its member is not to blame beside the time-out, and an answer belongs to its request."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                mq.Rep(bind="tcp://127.0.0.1:0") as rep:
            await one.aadopt("old", rep.endpoints[0].url)
            await two.await_members("old", timeout=LIMIT)
            with pytest.raises(cluster.RequestTimeout):
                await two.arequest("old", b"1", timeout=0.2)
            late = await rep.arecv_msg(timeout=LIMIT)
            found = []
            two.loop.spawn(lambda: ask(two, found, b"2", timeout=LIMIT))
            await sleep(0.01)
            try:
                late.reply(b"late")
            except mq.Error:        # its connection has gone with the request
                pass
            (await rep.arecv_msg(timeout=LIMIT)).reply(b"2!")
            assert await two.until(lambda: found, LIMIT)
            assert found == [b"2!"]

    run(main)


def test_what_is_closed_is_not_offered_again(run, key, monkeypatch):
    """A thread closes the socket, and may take its time."""
    monkeypatch.setattr(adopt, "LOOK", 0.01)

    async def main():
        async with cluster.ajoin(key) as net:
            with mq.Rep(bind="tcp://127.0.0.1:0") as rep:
                old = await net.aadopt("old", rep.endpoints[0].url)
                await net.await_members("old", timeout=LIMIT)
                offered = []

                class Slow:
                    closed = False

                    async def aclose(self, linger):
                        await sleep(0.1)
                        offered.append("old" in net.services)
                        self.closed = True
                        await socket.aclose(linger)

                socket, old.socket = old.socket, Slow()
                await old.aclose()
                assert offered == [False] and "old" not in net.services

    run(main)


@pytest.mark.parametrize("program", [ZMQ, NNG], ids=["zmq", "nng"])
def test_a_rep_of_another_library(once, key, program, tmp_path):
    (tmp_path / "rep.py").write_text(program)

    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            with starter() as start:
                other = start(tmp_path / "rep.py")
                await one.aadopt("old", other.line())
                await two.await_members("old", timeout=LIMIT)
                found = []
                for number in range(50):        # it has one of them at a time
                    two.loop.spawn(lambda number=number: ask(two, found, b"%d" % number,
                                                             timeout=LIMIT))
                assert await two.until(lambda: len(found) == 50, LIMIT)
                assert sorted(found) == sorted(b"%d!" % number for number in range(50))
                other.end(9)
                assert await two.until(lambda: not two.members("old"), LIMIT)

    once(main)
