"""cluster://NAME: the plain addresses of a service, whatever single members say of theirs."""

import pytest

import mqcore as mq
from mqcore import cluster
from mqcore.cluster.services import Service
from mqcore.testing import until

LIMIT = 50.0
BAD = ["nonsense", "cluster://it", "file:///etc/hosts", "tcp://127.0.0.1:1?foo=1", "tcp://x"]


class Plain:
    async def request(self, req):
        return req.body


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_no_socket_can_use_is_not_announced(once, key, url):
    async def main():
        async with cluster.ajoin(key) as net:
            with pytest.raises(mq.Error) as caught:
                net.aserve("it", Plain(), urls=("tcp://127.0.0.1:1", url))
            assert isinstance(caught.value, mq.AddressError | mq.OptionError | mq.UsageError)

    once(main)


@pytest.mark.parametrize("url", BAD)
def test_one_members_wrong_address_takes_nothing_from_the_others(key, tmp_path, url):
    with cluster.join(key) as one, cluster.join(key, seeds=[one.url]) as two, \
            mq.Rep(bind="tcp://127.0.0.1:0") as rep:
        bad = Service(two, "it", Plain(), concurrency=1, queue_bytes=0, weight=1.0, urls=(url,))
        with bad:
            name = f"cluster://it?key={tmp_path}/test.key&seeds={one.url}&refresh=0.1"
            with mq.Req(connect=name) as req:
                endpoint, = req.endpoints
                until(lambda: endpoint.error is not None)       # all of them are wrong so far
                with one.serve("it", Plain(), urls=(rep.endpoints[0].url,)):
                    req.send(b"by name")
                    message = rep.recv_msg(timeout=LIMIT)
                    message.reply(b"yes")
                    assert req.recv(timeout=LIMIT) == b"yes"
