"""Wrong arguments of a node's calls: a TypeError or ValueError that says what is wanted."""

import inspect

import pytest

from mqcore import cluster
from mqcore.errors import UsageError


class Echo:
    def request(self, req):
        return req.body

    async def tunnel(self, tun):
        async for message in tun:
            await tun.asend(message)


@pytest.mark.parametrize(("call", "says"), [
    (lambda net: net.arequest(5, b""), "name"),
    (lambda net: net.arequest("echo", 5), "bytes"),
    (lambda net: net.arequest("echo", b"", key=5), "key="),
    (lambda net: net.arequest("echo", b"", timeout="x"), "time-out"),
    (lambda net: net.arequest("echo", b"", timeout=-1), "time-out"),
    (lambda net: net.arequest("echo", b"", timeout=True), "time-out"),
    (lambda net: net.arequest("echo", b"", hedge="x"), "time-out"),
    (lambda net: net.arequest("echo", b"", hedge=-1), "time-out"),
    (lambda net: net.arequest("echo", b"", trace=5), "trace="),
    (lambda net: net.abroadcast(5, b""), "name"),
    (lambda net: net.abroadcast("echo", 5), "bytes"),
    (lambda net: net.asurvey(5, b""), "name"),
    (lambda net: net.asurvey("echo", "text"), "bytes"),
    (lambda net: net.asurvey("echo", b"", deadline=None), "time-out"),
    (lambda net: net.asurvey("echo", b"", deadline=-1), "time-out"),
    (lambda net: net.apublish(5, b""), "topic"),
    (lambda net: net.apublish("t", 5), "bytes"),
    (lambda net: net.asubscribe(5), "topic"),
    (lambda net: net.asubscribe("t", queue=5), "queue="),
    (lambda net: net.asubscribe("t", queue_bytes=-1), "queue_bytes="),
    (lambda net: net.asubscribe("t", queue_bytes="x"), "queue_bytes="),
    (lambda net: net.atunnel(5), "name"),
    (lambda net: net.atunnel("echo", timeout="x"), "time-out"),
    (lambda net: net.atunnel("echo", key=5), "key="),
    (lambda net: net.aserve(5, Echo()), "name"),
    (lambda net: net.aserve("echo", 5), "serves nothing"),
    (lambda net: net.aserve("echo", Echo(), concurrency=0), "concurrency="),
    (lambda net: net.aserve("echo", Echo(), concurrency="x"), "concurrency="),
    (lambda net: net.aserve("echo", Echo(), queue_bytes=-1), "queue_bytes="),
    (lambda net: net.aserve("echo", Echo(), weight="x"), "weight="),
    (lambda net: net.await_members(5), "name"),
    (lambda net: net.await_members("echo", "x"), "n="),
    (lambda net: net.await_members("echo", timeout="x"), "time-out"),
    (lambda net: net.aserve("echo", Echo(), weight=-1), "weight="),
    (lambda net: net.aserve("echo", Echo(), weight=float("nan")), "weight="),
    (lambda net: net.aserve("echo", Echo(), weight=float("inf")), "weight"),
    (lambda net: net.aserve("echo", Echo(), urls=5), "urls="),
    (lambda net: net.aserve("echo", Echo(), urls=(5,)), "urls="),
    (lambda net: net.aadopt(5, "tcp://127.0.0.1:9"), "name"),
    (lambda net: net.aadopt("echo", 5), "url="),
    (lambda net: net.aadopt("echo", "nonsense"), "nonsense"),
    (lambda net: net.aadopt("echo", "tcp://127.0.0.1:9", weight="x"), "weight="),
    (lambda net: net.aadopt("echo", "tcp://127.0.0.1:9", nonsense=1), "nonsense"),
    (lambda net: net.adrain("x"), "time-out"),
    (lambda net: net.adrain(-1), "time-out"),
    (lambda net: net.events().anext("x"), "time-out"),
    (lambda net: net.events().anext(-1), "time-out"),
    (lambda net: net.asubscribe("t").arecv(timeout="x"), "time-out"),
    (lambda net: net.asubscribe("t").arecv(timeout=-1), "time-out"),
    (lambda net: net.aserve("echo", Echo()).astop("x"), "time-out"),
    (lambda net: net.aserve("echo", Echo()).astop(-1), "time-out")])
def test_a_wrong_argument(once, key, call, says):
    async def main():
        async with cluster.ajoin(key) as net:
            with pytest.raises((TypeError, ValueError), match=says):
                found = call(net)
                if inspect.isawaitable(found):
                    await found

    once(main)


@pytest.mark.parametrize(("options", "says"), [
    ({"udp": 1}, "udp="), ({"udp": None}, "udp="),
    ({"seeds": 5}, "seeds="), ({"seeds": [5]}, "seeds="), ({"seeds": [""]}, "seeds="),
    ({"seeds": b"tcp://127.0.0.1:9"}, "seeds="), ({"seeds": ["tcp://127.0.0.1:9"] * 2000}, "1024"),
    ({"listen": 5}, "listen="), ({"listen": [None]}, "listen="), ({"listen": []}, "listen"),
    ({"zone": 5}, "zone="), ({"version": 5}, "version="), ({"url": 5}, "url=")])
@pytest.mark.parametrize("call", [cluster.ajoin, cluster.join])
def test_a_wrong_argument_of_join(key, call, options, says):
    with pytest.raises(TypeError, match=says):
        call(key, **options).__enter__()


@pytest.mark.parametrize("wrong", [None, "prod.key", b"secret"])
def test_what_is_no_key(wrong):
    with pytest.raises(TypeError, match="joined with a Key"):
        cluster.ajoin(wrong)


@pytest.mark.parametrize("data", [memoryview(b"a-b-c")[::2], memoryview(b"cba")[::-1],
                                  memoryview(b""), bytearray(b"abc")])
def test_bytes_that_are_not_in_a_row(once, key, data):
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("echo", Echo()), \
                net.atunnel("echo") as tunnel:
            await tunnel.asend(data)
            assert await tunnel.arecv(timeout=30) == bytes(data)
            assert await net.arequest("echo", data, timeout=30) == bytes(data)

    once(main)


def test_a_view_that_has_been_released(once, key):
    view = memoryview(bytearray(b"abc"))
    view.release()

    async def main():
        async with cluster.ajoin(key) as net, net.aserve("echo", Echo()), \
                net.atunnel("echo") as tunnel:
            for call in (lambda: tunnel.asend(view), lambda: net.arequest("echo", view),
                         lambda: net.apublish("t", view), lambda: net.abroadcast("echo", view)):
                with pytest.raises(UsageError, match="the memoryview has been released"):
                    await call()
            await tunnel.asend(b"more")
            assert await tunnel.arecv(timeout=30) == b"more"

    once(main)


@pytest.mark.parametrize(("call", "says"), [
    (lambda tunnel: tunnel.asend("text"), "bytes"),
    (lambda tunnel: tunnel.asend(b"", timeout="x"), "time-out"),
    (lambda tunnel: tunnel.asend(b"", timeout=-1), "time-out"),
    (lambda tunnel: tunnel.arecv(timeout="x"), "time-out"),
    (lambda tunnel: tunnel.arecv(timeout=True), "time-out"),
    (lambda tunnel: tunnel.reset(5), "reset"),
    (lambda tunnel: tunnel.reset("closed", 5), "reset")])
def test_a_wrong_argument_of_a_tunnel(once, key, call, says):
    """The tunnel survives it."""
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("echo", Echo()), \
                net.atunnel("echo") as tunnel:
            with pytest.raises(TypeError, match=says):
                found = call(tunnel)
                if inspect.isawaitable(found):
                    await found
            await tunnel.asend(b"still open")
            assert await tunnel.arecv(timeout=30) == b"still open"

    once(main)
