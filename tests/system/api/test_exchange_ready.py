"""A REP or RESPONDENT that owes an answer is not readable, in every way of waiting."""

import asyncio
import select
import threading

import pytest

import mqcore as mq
from mqcore import Ready

ASKS = {"rep": "req", "respondent": "surveyor"}


@pytest.fixture(params=ASKS)
def exchange(ctx, request):
    """The answering socket, and two that have asked it."""
    name = f"inproc://{request.param}"
    server = ctx.socket(request.param, bind=name)
    clients = [ctx.socket(ASKS[request.param], connect=name) for _ in range(2)]
    for client in clients:
        client.send(b"question")
    return server, clients


def test_it_is_readable_when_it_has_answered(exchange):
    server, clients = exchange
    with mq.Poller() as poller:
        poller.register(server, Ready.READ)
        for _ in clients:
            assert poller.poll(10) == [(server, Ready.READ)]
            assert mq.poll([server], 10) and select.select([server], [], [], 10)[0]
            server.recv()
            assert poller.poll(0) == [] and mq.poll([(server, Ready.READ)], 0) == []
            assert not select.select([server], [], [], 0)[0]
            server.send(b"answer")
        assert poller.poll(0) == []
    for client in clients:
        assert client.recv(timeout=10) == b"answer"


@pytest.mark.parametrize("way", ["poll", "poller", "fileno"])
def test_a_thread_that_polls_wakes_up_at_the_answer(exchange, way):
    server, _ = exchange
    server.recv(timeout=10)
    poller = mq.Poller()
    poller.register(server, Ready.READ)
    waits = {"poll": lambda: mq.poll([(server, Ready.READ)], 20),
             "poller": lambda: poller.poll(20),
             "fileno": lambda: select.select([server], [], [], 20)[0]}
    if way == "fileno":
        server.fileno()
    found = []
    thread = threading.Thread(target=lambda: found.append(waits[way]()))
    thread.start()
    server.send(b"answer")
    thread.join()
    poller.close()
    assert found[0] and server.recv(timeout=0) == b"question"


def test_a_task_that_polls_wakes_up_at_the_answer(exchange):
    server, _ = exchange

    async def main():
        await server.arecv(timeout=10)
        waiting = asyncio.create_task(mq.apoll([(server, Ready.READ)], 20))
        await asyncio.sleep(0)
        assert not waiting.done()
        await server.asend(b"answer")
        assert await waiting
        assert await server.arecv(timeout=0) == b"question"
    asyncio.run(main())


def test_messages_that_are_answered_in_any_order_stay_readable(exchange):
    """recv_msg() owes nothing in order."""
    server, clients = exchange
    first = server.recv_msg(timeout=10)
    assert mq.poll([(server, Ready.READ)], 10)
    second = server.recv_msg(timeout=10)
    second.reply(b"2")
    first.reply(b"1")
    assert sorted(client.recv(timeout=10) for client in clients) == [b"1", b"2"]
