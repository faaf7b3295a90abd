"""A program that uses the public calls; mypy --strict must accept it, and refuse the lines marked
so."""

from __future__ import annotations

import asyncio
from typing import assert_type

import mqcore as mq


def blocking() -> None:
    with mq.Context(io_threads=2, linger=0.5, mandatory=True) as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=10)
        assert_type(pull, mq.Pull)
        with mq.Push(connect=pull.endpoints[0], context=context, on_full="drop_new") as push:
            push.send(b"1", timeout=1)
            push.send(memoryview(b"2"), timeout=None)
            push.send_parts([b"1", bytearray(b"2")])
            assert_type(push.send_many([b"1", [b"2", b"3"]]), int)
            push.send(b"1", block=True)  # refused: call-arg
            push.send("text")  # refused: arg-type
            push.recv()  # refused: attr-defined
            push.linger = 2.0
            push.linger = "2"  # refused: assignment
        assert_type(pull.recv(), bytes)
        assert_type(pull.recv_msg().parts, tuple[bytes | memoryview, ...])
        assert_type(pull.recv_many(10, timeout=0), list[bytes])
        pull.send(b"x")  # refused: attr-defined
        for body in pull:
            assert_type(body, bytes)
        for message in pull.messages():
            assert_type(message, mq.Message)
        report = pull.close(linger=1)
        assert_type(report, mq.CloseReport)
    mq.Push(conect="tcp://127.0.0.1:1")  # refused: call-arg
    mq.Push(send_hwm="many")  # refused: arg-type


def patterns(url: str) -> None:
    sub = mq.socket("sub", topics=["a", b"b"], connect=url)
    assert_type(sub, mq.Sub)
    sub.subscribe("c", b"d")
    req = mq.socket("req", connect=[url], strict=True)
    assert_type(req.request([b"a", b"b"], timeout=1), bytes)
    router = mq.Router(bind=url, handover=False)
    router.send_to(b"id", b"a", b"b", timeout=1)
    router.send_to(router.peers()[0], b"a")
    router.recv()  # refused: attr-defined
    for message in router:
        assert_type(message, mq.Message)
        message.reply(b"yes")
    peer = mq.socket("peer", bind=url, send_hwm=5)
    peer.send_to(peer.connect_peer(url, wait=1).id, b"a")
    for message in peer:
        assert_type(message, mq.Message)
    mq.Dgram(bind=url).send_to("127.0.0.1:1", b"a")
    mq.Scatter(connect=url).recv()  # refused: attr-defined
    stream = mq.socket("stream", notify=True)
    stream.connect(url, peer_id=b"web", wait=1)
    stream.send_to(b"web", b"")
    for message in stream:
        assert_type(message, mq.Message)
    mq.Push().connect(url, peer_id=b"web")  # refused: call-arg
    rep = mq.Rep(bind=url)
    for obj, ready in mq.poll([req, (router, mq.Ready.WRITE), 0], timeout=1):
        print(obj, ready is mq.Ready.READ)
    for event in rep.events():
        assert_type(event, mq.Event)
    pub = mq.Pub(bind=url, retain=1, heartbeat=None)
    pub.wait_subscribers("x", n=2, timeout=1)
    view = mq.empty(10)
    view[0] = 1
    pub.send(view)


async def loops(url: str) -> None:
    async with mq.Dealer() as dealer:
        await dealer.aconnect(url, wait=1, heartbeat=1.0)
        await dealer.asend(b"x")
        assert_type(await dealer.arecv(timeout=1), bytes)
        async for body in dealer:
            assert_type(body, bytes)
        async for batch in dealer.batches():
            assert_type(batch, mq.Batch)
        await dealer.asend(1)  # refused: arg-type


if __name__ == "__main__":
    try:
        blocking()
    except mq.SendTimeout as error:
        print(error.sent, error.why)
    asyncio.run(loops("tcp://127.0.0.1:1"))
