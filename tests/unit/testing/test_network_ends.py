"""The simulated network: sockets, contexts and the network itself end at any moment."""

import asyncio

import pytest

import mqcore as mq
from mqcore.testing import network
from mqcore.testing.network import virtual_loop

pytestmark = pytest.mark.usefixtures("mq_leaks")


def pipeline(net):
    pull = net.host("a").socket("pull", bind="sim://a/x")
    push = net.host("b").socket("push", connect="sim://a/x")
    push.wait_peers(timeout=60)
    return push, pull


def test_a_socket_of_a_paused_host_can_be_closed():
    with network.Network() as net:
        push, pull = pipeline(net)
        net.pause("a")
        pull.close()
        net.run(seconds=5)
        assert push.peers()
        net.go("a")
        net.run(seconds=5)
        assert not push.peers()


@pytest.mark.parametrize(("close", "closed"), [
    (lambda net, _: net.close(), mq.SocketClosed),
    (lambda net, _: net.host("a").context.close(), mq.SocketClosed),
    (lambda _, pull: pull.close(), mq.SocketClosed),
    (lambda net, _: net.host("b").context.close(), mq.RecvTimeout)])
def test_a_callback_may_close(close, closed):
    with network.Network() as net:
        push, pull = pipeline(net)
        net.at(5, close, net, pull)
        with pytest.raises(closed):
            pull.recv(timeout=60)
        assert net.now >= 5


def test_tasks_that_poll_without_time_are_stuck(monkeypatch):
    monkeypatch.setattr(virtual_loop, "IDLE_TURNS", 1000)

    async def main(net):
        pull = net.host("a").socket("pull", bind="sim://a/x")
        while not mq.poll([pull], timeout=0):
            await asyncio.sleep(0)

    with network.Network() as net:
        with pytest.raises(network.Stuck, match="1000 times at one moment"):
            net.run_async(main(net))
        net.run(seconds=1)
