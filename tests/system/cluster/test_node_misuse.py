"""What a program, a member or a stranger may do to a node, and the node goes on."""

import asyncio
import gc
import os
import threading

import pytest
from echoing import Echo
from waiting import until

import mqcore as mq
from mqcore import cluster
from mqcore.cluster.loops import loop_here

LIMIT = 60.0


class Silent:
    def request(self, req):
        raise OSError("no file \udcff")


def test_a_link_whose_session_ended_is_made_anew(once, key):
    """The other side would wait for ever on a connection that nobody listens to."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("echo", Echo()):
            await two.await_members("echo", timeout=LIMIT)
            link = next(iter(two.directory.members.values())).link
            link.session._seal(b"\xc1")
            assert await two.until(lambda: not link.alive, LIMIT)
            await two.await_members("echo", timeout=LIMIT)
            assert await two.arequest("echo", b"again", timeout=LIMIT) == b"again"
            assert one.links.dropped["unreadable"] == 1

    once(main)


def test_a_stranger_does_not_keep_its_connection(once, key):
    """A thousand of them would else leave no room for the handshake of a member."""
    async def main():
        async with cluster.ajoin(key) as net:
            with mq.Dealer(connect=net.url, reconnect=LIMIT, probe=True) as stranger:
                stranger.send(b"no handshake")
                assert await net.until(lambda: net.links.dropped.get("unreadable"), LIMIT)
                assert await net.until(lambda: not net.links.by_rid and not stranger.peers(), LIMIT)

    once(main)


@pytest.mark.parametrize("how", [
    {"timeout": 1e10}, {"timeout": float("nan")}, {"timeout": "5"},
    {"headers": dict.fromkeys(map(str, range(33)), b"")}, {"headers": {"": b""}},
    {"headers": {"a": b"x" * 4097}}, {"headers": {"a": "text"}}, {"headers": {5: b""}},
    {"trace": "x" * 256}])
def test_a_request_that_no_member_could_read_is_not_sent(once, key, how):
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("echo", Echo()):
            with pytest.raises(mq.UsageError):
                await net.arequest("echo", b"", **how)
            assert net.stats()["requests"]["asked"] == 0

    once(main)


def test_services_that_no_member_could_read_of(once, key):
    async def main():
        async with cluster.ajoin(key) as net:
            for how in ({"weight": float("inf")}, {"concurrency": 1 << 62},
                        {"urls": ("tcp://127.0.0.1:1",) * 17}):
                with pytest.raises(mq.UsageError, match="nobody could read"):
                    net.aserve("echo", Echo(), **how)
            with pytest.raises(mq.UsageError, match="fewer"):
                for number in range(100):
                    await net.aserve(f"{number:0255}", Echo()).astart()
            assert number > 10
            assert await net.adrain(LIMIT)      # which tells of all services again
        for how in ({"zone": "z" * 129}, {"version": "v" * 256}, {"url": "tcp://" + "h" * 128}):
            with pytest.raises(mq.UsageError, match="characters"):
                cluster.ajoin(key, **how)

    once(main)


def test_more_groups_than_a_frame_has_room_for(once, key):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            feeds = [await two.asubscribe("t", queue=f"g{number}").astart() for number in range(70)]
            for _ in range(2):
                assert await one.apublish("t", b"x") == 1
                for feed in feeds:
                    assert (await feed.arecv(timeout=LIMIT)).body == b"x"
            assert not any(feed.waiting for feed in feeds) and not two.links.dropped

    once(main)


def test_an_error_that_is_no_utf8_is_told(once, key):
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("silent", Silent()):
            with pytest.raises(cluster.RemoteError, match=r"no file \?"):
                await net.arequest("silent", b"", timeout=LIMIT)

    once(main)


def test_blocking_calls_after_the_end(key):
    with cluster.join(key) as net:
        service = net.serve("echo", Echo()).start()
        feed = net.subscribe("t").start()
        events = net.events()
    for call in (lambda: net.request("echo", b""), lambda: net.publish("t", b""),
                 lambda: net.wait_members(timeout=LIMIT), net.drain, feed.recv):
        with pytest.raises(cluster.NodeClosed):
            call()
    service.stop()
    feed.close()
    net.close()
    list(events)


def test_a_drain_that_is_over_before_its_thread_looks_has_succeeded(key, monkeypatch):
    """A busy machine may run the whole drain between two bytecodes of the thread that calls."""
    with cluster.join(key, udp=False) as net:
        real = net.loop.loop.call_soon_threadsafe

        def schedule(*args):
            real(*args)
            if threading.current_thread() is threading.main_thread():
                until(lambda: net.loop._ended)

        with monkeypatch.context() as patch:
            patch.setattr(net.loop.loop, "call_soon_threadsafe", schedule)
            assert net.drain(LIMIT) is True


def test_a_blocking_call_while_the_node_leaves(caplog, monkeypatch, recwarn):
    """One that was made before begins, and finds that out. None is left behind in a loop that has
    ended."""
    begun, scheduled = [], threading.Event()

    async def call():
        begun.append(True)
        raise cluster.NodeClosed("it has left")

    def make(loop):
        with pytest.raises(cluster.NodeClosed):
            loop.call(call)

    async def main():
        loop = loop_here(pytest.fail, pytest.fail)
        real = loop.loop.call_soon_threadsafe

        def schedule(*args):
            real(*args)
            scheduled.set()

        monkeypatch.setattr(loop.loop, "call_soon_threadsafe", schedule)
        thread = threading.Thread(target=make, args=(loop,))
        thread.start()
        assert scheduled.wait(LIMIT)        # and the loop has had no turn since
        await loop.aclose()
        return loop, thread

    loop, thread = asyncio.run(main())
    thread.join()
    make(loop)
    assert begun == [True] and loop.over
    del loop, thread
    gc.collect()        # what a loop left behind would complain
    assert not caplog.records and not recwarn.list


def test_blocking_calls_in_a_forked_child(key):
    """The thread of the loop is not there: nobody would ever answer."""
    with cluster.join(key) as net, net.serve("echo", Echo()) as service:
        child = os.fork()
        if not child:
            status = 1
            try:
                try:
                    net.request("echo", b"")
                except mq.Forked:
                    status = 0
                service.stop()
                net.close()
            finally:
                os._exit(status)
        ended = []
        until(lambda: ended.append(os.waitpid(child, os.WNOHANG)) or ended[-1][0] == child)
        assert os.waitstatus_to_exitcode(ended[-1][1]) == 0
        assert net.request("echo", b"on", timeout=LIMIT) == b"on"
