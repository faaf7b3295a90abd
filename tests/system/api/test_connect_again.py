"""connect() to an address again, and to sockets in this process that do not fit."""

import pytest

import mqcore as mq
from mqcore.testing import until


@pytest.mark.parametrize(("here", "there"), [("sub", "pub"), ("pub", "sub"), ("xsub", "xpub"),
                                             ("xpub", "xsub"), ("bus", "bus")])
@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://again"])
def test_a_second_connect_gives_the_first_endpoint(ctx, here, there, url):
    server, client = ctx.socket(there, bind=url), ctx.socket(here)
    at = server.endpoints[0].url
    first = client.connect(at)
    assert client.connect(at) is first and client.connect(at) is first
    assert client.endpoints == (first,)
    client.wait_peers(1, 10)
    server.wait_peers(1, 10)
    assert len(server.peers()) == 1
    client.disconnect(at)
    until(lambda: not server.peers())
    second = client.connect(at)     # it has ended, so this is a new one
    assert second is not first
    client.wait_peers(1, 10)


def test_other_arguments_make_another_connection(ctx):
    pub, sub = ctx.socket("pub", bind="tcp://127.0.0.1:0"), ctx.socket("sub", topics=[b""])
    at = pub.endpoints[0].url
    assert sub.connect(at) is not sub.connect(at, heartbeat=5.0)
    pub.wait_peers(2, 10)


def test_elsewhere_each_connect_is_a_connection(ctx):
    pull, push = ctx.socket("pull", bind="tcp://127.0.0.1:0"), ctx.socket("push")
    at = pull.endpoints[0].url
    assert push.connect(at) is not push.connect(at)
    pull.wait_peers(2, 10)


@pytest.mark.parametrize(("here", "there"), [("pair", "pull"), ("push", "sub"), ("req", "dealer")])
def test_a_socket_in_this_process_that_does_not_fit(ctx, here, there):
    server, client = ctx.socket(there, bind="inproc://misfit"), ctx.socket(here)
    with pytest.raises(mq.HandshakeFailed, match=f"a {here} cannot talk to a {there}"):
        client.connect("inproc://misfit")
    assert client.endpoints == () and not server.peers()
    server.close()
    early = client.connect("inproc://misfit")       # it waits for the name
    ctx.socket(there, bind="inproc://misfit")
    with pytest.raises(mq.HandshakeFailed, match="cannot talk"):
        early.wait_ready(10)
