"""pynng programs with each end of either module: what they send and receive is the same."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest
import trio
from certificates import Authority
from free import free_address

from mqcore.testing import until

SHORT = 30  # ms, for what shall not come


def test_pair(joined):
    a, b = joined("Pair0", "Pair0")
    a.send(b"to b")
    assert b.recv() == b"to b"
    b.send(b"to a")
    message = a.recv_msg()
    assert (message.bytes, message.pipe) == (b"to a", a.pipes[0])
    message.pipe.send(b"by pipe")
    assert b.recv() == b"by pipe"
    big = bytes(range(256)) * 40_000
    a.send(big)
    assert b.recv() == big


def test_pipeline(joined):
    push, *pulls = joined("Push0", "Pull0", "Pull0")
    for i in range(4):
        push.send(b"%d" % i)
    found = []

    def all_here():  # nng gives to whoever is ready, not in turn
        for pull in pulls:
            try:
                found.append(pull.recv(block=False))
            except Exception as error:
                assert type(error).__name__ == "TryAgain"
        return len(found) == 4

    until(all_here)
    assert sorted(found) == [b"0", b"1", b"2", b"3"]


def test_publish_and_subscribe(joined):
    pub, sub, other = joined("Pub0", "Sub0", "Sub0", b={"topics": "wea"})
    other.unsubscribe("wea")
    other.subscribe(b"s")
    other.subscribe(b"s")  # as if once
    sub.subscribe("news")
    for text in (b"weather", b"news", b"sports", b"wet"):
        pub.send(text)
    assert (sub.recv(), sub.recv(), other.recv()) == (b"weather", b"news", b"sports")
    other.unsubscribe(b"s")
    sub.unsubscribe("news")
    for text in (b"sports", b"news", b"weather"):
        pub.send(text)
    assert sub.recv() == b"weather"
    other.recv_timeout = SHORT
    with pytest.raises(Exception) as caught:
        other.recv()
    assert type(caught.value).__name__ == "Timeout"


def test_request_and_reply(joined):
    rep, req = joined("Rep0", "Req0")
    for i in range(3):
        req.send(b"question %d" % i)
        assert rep.recv() == b"question %d" % i
        rep.send(b"answer %d" % i)
        assert req.recv() == b"answer %d" % i
    req.send(b"forgotten")
    req.send(b"asked")
    while rep.recv() != b"asked":
        pass
    rep.send(b"told")
    assert req.recv() == b"told"
    req.send(b"in a Message")
    question = rep.recv_msg()
    assert question.pipe is rep.pipes[0]
    rep.send_msg(question)
    assert req.recv() == b"in a Message"


def test_contexts(joined):
    rep, req = joined("Rep0", "Req0")
    with req.new_context() as one, req.new_context() as two, \
            rep.new_context() as first, rep.new_context() as second:
        one.send(b"1")
        assert first.recv() == b"1"
        two.send(b"2")
        assert second.recv() == b"2"
        second.send(b"to 2")
        first.send(b"to 1")
        assert (one.recv(), two.recv()) == (b"to 1", b"to 2")
        one.send(b"again")
        message = second.recv_msg()
        second.send_msg(message)
        assert one.recv_msg().bytes == b"again"


def test_survey(joined):
    asker, *others = joined("Surveyor0", "Respondent0", "Respondent0", a={"survey_time": 5000})
    asker.send(b"who?")
    for i, other in enumerate(others):
        assert other.recv() == b"who?"
        other.send(b"me %d" % i)
    assert sorted((asker.recv(), asker.recv())) == [b"me 0", b"me 1"]
    with asker.new_context() as context:
        context.send(b"and you?")
        with others[0].new_context() as answering:
            assert answering.recv() == b"and you?"
            answering.send(b"I")
        assert context.recv() == b"I"
    asker.survey_time = SHORT
    asker.send(b"too late")
    failed = []
    for _ in range(2):
        with pytest.raises(Exception) as caught:
            asker.recv()
        failed.append(type(caught.value).__name__)
    assert failed == ["Timeout", "BadState"]


def test_bus(joined):
    centre, *others = joined("Bus0", "Bus0", "Bus0")
    centre.send(b"to all")
    assert [other.recv() for other in others] == [b"to all"] * 2
    others[0].send(b"to the centre")
    assert centre.recv() == b"to the centre"
    others[1].recv_timeout = SHORT
    with pytest.raises(Exception) as caught:
        others[1].recv()
    assert type(caught.value).__name__ == "Timeout"


def test_many_to_one_pairs(joined):
    server, *clients = joined("Pair1", "Pair1", "Pair1", a={"polyamorous": True},
                              b={"polyamorous": True})
    assert server.polyamorous and len(server.pipes) == 2
    for client, name in zip(clients, (b"x", b"y"), strict=True):
        client.send(name)
        message = server.recv_msg()
        assert message.bytes == name
        message.pipe.send(b"for " + name)
        assert client.recv() == b"for " + name
    for pipe in server.pipes:
        server.send_msg(type(message)(b"each", pipe))
    assert [client.recv() for client in clients] == [b"each"] * 2
    clients[0].close()
    until(lambda: len(server.pipes) == 1)
    message.pipe.send(b"still")
    assert clients[1].recv() == b"still"


def test_pair1_alone(joined):
    a, b = joined("Pair1", "Pair1")
    a.send(b"x")
    assert b.recv() == b"x"
    b.send(b"y")
    assert a.recv() == b"y"


async def conversation(rep, req):
    """Questions of a socket and of two contexts, awaited."""
    await req.asend(b"q")
    question = await rep.arecv_msg()
    await rep.asend_msg(question)
    answers = [(await req.arecv_msg()).bytes]
    with req.new_context() as one, rep.new_context() as other:
        await one.asend(b"c")
        assert await other.arecv() == b"c"
        await other.asend(b"d")
        answers.append(await one.arecv())
    return answers


@pytest.mark.parametrize("run", [lambda f, *a: asyncio.run(f(*a)), trio.run],
                         ids=["asyncio", "trio"])
def test_async(joined, run):
    rep, req = joined("Rep0", "Req0")
    assert run(conversation, rep, req) == [b"q", b"d"]


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "abstract", "ws"])
def test_wires(joined, sides, scheme, mq_folder):
    if sides.wire == "inproc":
        pytest.skip("one module with itself talks over inproc above")
    if scheme == "ws" and find_spec("mqcore.wire.websocket.spws") is None:
        pytest.skip("SP over WebSocket is not built")
    address = {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{mq_folder}/a b?",
               "abstract": f"abstract://{mq_folder.name}", "ws": f"ws://{free_address()}/p/q"}
    with sides.a.Rep0(listen=address[scheme], recv_timeout=5000) as rep, \
            sides.b.Req0(dial=rep.listeners[0].url, block_on_dial=True,
                         recv_timeout=5000) as req:
        for body in (b"q", b"q" * 70_000 + b"!"):
            req.send(body)
            assert rep.recv() == body
            rep.send(body[::-1])
            assert req.recv() == body[::-1]
        pipe = req.pipes[0]
        assert pipe.url == rep.listeners[0].url
        if scheme == "tcp":
            ends = [(str(end.pipes[0].local_address), str(end.pipes[0].remote_address))
                    for end in (req, rep)]
            assert ends[0] == ends[1][::-1] and ends[0][0] != ends[0][1]
        if scheme == "ipc":
            assert str(rep.listeners[0].local_address) == f"{mq_folder}/a b?"


def test_tls(sides, mq_folder):
    authority = Authority(mq_folder)
    ca = Path(authority.ca["tls_ca"]).read_text()
    served = sides.a.TLSConfig(sides.a.TLSConfig.MODE_SERVER,
                               own_cert_string=Path(authority.server["tls_cert"]).read_text(),
                               own_key_string=Path(authority.server["tls_key"]).read_text())
    with sides.a.Rep0(listen="tls+tcp://127.0.0.1:0", tls_config=served, recv_timeout=5000) as rep:
        trusting = sides.b.TLSConfig(sides.b.TLSConfig.MODE_CLIENT, ca_string=ca,
                                     server_name="localhost")
        with sides.b.Req0(dial=rep.listeners[0].url,
                          tls_config=trusting, block_on_dial=True, recv_timeout=5000) as req:
            req.send(b"secret")
            assert rep.recv() == b"secret"
            rep.send(b"told")
            assert req.recv() == b"told"
