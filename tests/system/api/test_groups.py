"""Radio and Dish: groups over every transport with a connection, blocking and awaited."""

import threading

import numpy as np
import pytest

import mqcore as mq

LIMIT = 60.0


@pytest.fixture(params=["inproc", "tcp", "ipc"])
def url(request):
    return {"inproc": "inproc://g", "tcp": "tcp://127.0.0.1:0", "ipc": "ipc://*"}[request.param]


@pytest.fixture
def linked(ctx, url):
    """A radio and a dish that has joined some groups."""

    def link(*groups, url=url, radio=None, dish=None):
        out = ctx.socket("radio", bind=url, **radio or {})
        into = ctx.socket("dish", groups=groups, connect=out.endpoints[0].url, **dish or {})
        for group in groups:
            out.wait_subscribers(group, timeout=LIMIT)
        into.wait_peers(timeout=LIMIT)
        return out, into

    return link


def test_who_joined_gets_it(linked):
    out, into = linked("news", "wether")
    for group in ("news", "new", "newsy", "", "wether"):
        out.send(group.encode() + b"!", group=group)
    first, second = into.recv_msg(timeout=LIMIT), into.recv_msg(timeout=LIMIT)
    assert [(m.group, m.parts, m.topic, m.routing_id) for m in (first, second)] == [
        ("news", (b"news!",), None, None), ("wether", (b"wether!",), None, None)]
    assert (out.stats().sent, out.stats().unmatched) == (5, 3)
    with pytest.raises(mq.RecvTimeout):
        into.recv(timeout=0)


def test_join_and_leave_at_any_time(linked):
    out, into = linked()
    for round in range(50):
        group = f"g{round % 7}"
        into.join(group)
        out.wait_subscribers(group, timeout=LIMIT)
        out.send(b"%d" % round, group=group)
        assert into.recv(timeout=LIMIT) == b"%d" % round
        into.leave(group)
        out.send(b"late", group=group)
        into.join("next")
        out.wait_subscribers("next", timeout=LIMIT)   # what was said before has been heard
        out.send(b"next", group="next")
        assert into.recv(timeout=LIMIT) == b"next"
        into.leave("next")
    assert into.groups == ()


def test_many_groups_and_dishes(ctx, url):
    names = [f"group {i}" for i in range(500)]
    out = ctx.socket("radio", bind=url)
    dishes = [ctx.socket("dish", groups=names[i::5], connect=out.endpoints[0].url)
              for i in range(5)]
    for name in names:
        out.wait_subscribers(name, timeout=LIMIT)
    for name in names:
        out.send(name.encode(), group=name)
    for i, dish in enumerate(dishes):
        got = [dish.recv_msg(timeout=LIMIT) for _ in names[i::5]]
        assert [(m.group, m.body) for m in got] == [(n, n.encode()) for n in names[i::5]]
    assert out.stats().unmatched == 0


def test_every_way_to_send(linked):
    out, into = linked("g")
    out.send(b"1", group="g")
    out.send_parts([b"2"], group=b"g")
    assert out.send_many([b"3", [b"4"], bytearray(b"5")], group="g") == 3
    assert out.send_batch(np.frombuffer(b"67", np.uint8), [0, 1, 2], group="g") == 2
    pinned = out.send_ref(memoryview(b"8" * 5000), group="g")
    got = []
    while len(got) < 8:
        got += into.recv_many(timeout=LIMIT)
    assert got == [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8" * 5000]
    pinned.wait_done(LIMIT)
    out.send(b"x" * 1_000_000, group="g")
    assert into.recv(timeout=LIMIT) == b"x" * 1_000_000


def test_every_way_to_receive(linked):
    out, into = linked("g")
    for i in range(6):
        out.send(b"%d" % i, group="g")
    room = bytearray(9)
    assert into.recv(timeout=LIMIT) == b"0"
    assert into.recv_parts(timeout=LIMIT) == [b"1"]
    assert bytes(into.recv_msg(timeout=LIMIT)) == b"2"
    assert (into.recv_into(room, timeout=LIMIT), room[:1]) == (1, b"3")
    rest = []
    while len(rest) < 2:
        rest += into.recv_batch(timeout=LIMIT).to_list()
    assert rest == [b"4", b"5"]


def test_groups_are_text_or_bytes(linked):
    out, into = linked("größe", b"\xff\0", b"g" * 255)
    assert into.groups == ("größe", "\udcff\0", "g" * 255)
    for group in into.groups:
        out.send(b"x", group=group)
        assert into.recv_msg(timeout=LIMIT).group == group
    into.leave(*into.groups)
    assert into.groups == ()


def test_no_group_is_the_empty_one(linked):
    out, into = linked("")
    out.send(b"x")
    assert into.recv_msg(timeout=LIMIT).group == ""


def test_joined_twice_is_left_twice(ctx):
    with ctx.socket("dish", groups=("a", "a")) as into:
        assert into.groups == ("a",)
        into.leave("a")
        assert into.groups == ("a",)
        into.leave("a")
        with pytest.raises(mq.NotSubscribed, match="'a' is not joined"):
            into.leave("a")


def test_wrong_use_says_what_to_do(ctx):
    with ctx.socket("radio") as out, ctx.socket("dish") as into:
        with pytest.raises(mq.NotSubscribed, match="join"):
            into.recv(timeout=LIMIT)
        with pytest.raises(mq.UsageError, match="one part, not 2"):
            out.send_parts([b"a", b"b"], group="g")
        with pytest.raises(mq.UsageError, match="one part, not 2"):
            out.send_many([b"fine", [b"a", b"b"]])
        with pytest.raises(mq.UsageError, match="sequence of parts"):
            out.send_parts(b"ab")
        for call in (lambda g: out.send(b"x", group=g), into.join, into.leave,
                     lambda g: out.wait_subscribers(g, timeout=0)):
            with pytest.raises(mq.UsageError, match="at most 255 bytes, not 256"):
                call("g" * 256)
            with pytest.raises(mq.UsageError, match="str or bytes, not int"):
                call(1)
        with pytest.raises(mq.UsageError, match="radio socket cannot recv"):
            out.recv()
        with pytest.raises(mq.UsageError, match="dish socket cannot send"):
            into.send(b"x")
        with pytest.raises(mq.OptionError, match="conflate is not supported by radio"):
            ctx.socket("radio", conflate=True)


def test_explain_knows_them(ctx):
    with ctx.socket("radio") as out, ctx.socket("dish") as into:
        out.send(b"x", group="nobody")
        assert "1 message(s) were for groups without a member" in out.explain()
        assert "has joined no group" in into.explain()


@pytest.mark.parametrize("nodrop", [False, True])
def test_a_full_dish_loses_or_is_waited_for(linked, nodrop):
    out, into = linked("g", radio={"nodrop": nodrop, "send_hwm": 4, "send_buffer": 4096},
                       dish={"recv_hwm": 4, "recv_buffer": 4096})
    refused = 0
    for i in range(400):
        try:
            out.send(b"%03d" % i + b"x" * 9000, group="g", timeout=0)
        except mq.SendTimeout:
            refused += 1
    stats = out.stats()
    (peer,) = stats.peers.values()
    assert (refused > 0) == nodrop
    assert (peer.dropped.get("full", 0) > 0) == (not nodrop)
    assert peer.offered + refused == 400
    assert peer.offered == peer.written + peer.queued_out + sum(peer.dropped.values())
    out.close(0)


def test_a_device_passes_groups_on(ctx):
    front = ctx.socket("dish", bind="inproc://front", groups=("a", "b"))
    back = ctx.socket("radio", bind="inproc://back")
    with mq.device(front, back) as device, \
            ctx.socket("radio", connect="inproc://front") as out, \
            ctx.socket("dish", connect="inproc://back", groups=("b",)) as into:
        out.wait_subscribers("b", timeout=LIMIT)
        into.wait_peers(timeout=LIMIT)
        while not device.stats().forth:           # until the far dish's join has come as well
            out.send(b"a", group="a")
        out.send(b"b", group="b")
        got = into.recv_msg(timeout=LIMIT)
        assert (got.group, got.body) == ("b", b"b")


# -- loops and threads -----------------------------------------------------------------------------

def test_awaited(ctx, url, loop):
    async def talk():
        async with ctx.socket("radio", bind=url) as out, ctx.socket("dish", groups="g") as into:
            await into.aconnect(out.endpoints[0].url)
            await out.await_subscribers("g", timeout=LIMIT)
            await out.asend(b"1", group="g")
            await out.asend_parts([b"2"], group="g")
            assert await out.asend_many([b"3", [b"4"]], group="g") == 2
            assert await out.asend_batch(b"56", [0, 1, 2], group="g") == 2
            await out.asend_ref(b"7" * 5000, group="g")
            got = [await into.arecv_msg(timeout=LIMIT) for _ in range(7)]
            assert [m.body for m in got] == [b"1", b"2", b"3", b"4", b"5", b"6", b"7" * 5000]
            assert {m.group for m in got} == {"g"}
            into.leave("g")
            with pytest.raises(mq.NotSubscribed):
                await into.arecv(timeout=LIMIT)

    loop.run(talk)


def test_threads_join_while_others_receive(linked):
    out, into = linked("end", url="tcp://127.0.0.1:0")
    seen = []

    def reader():
        while (m := into.recv_msg(timeout=LIMIT)).group != "end":
            seen.append((m.group, m.body))

    def joiner(name):
        for _ in range(50):
            into.join(name)
            into.leave(name)
        into.join(name)

    threads = [threading.Thread(target=joiner, args=(f"t{i}",)) for i in range(4)]
    threads.append(threading.Thread(target=reader))
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    for i in range(4):
        out.wait_subscribers(f"t{i}", timeout=LIMIT)
    into.join("sync")                         # told after all the others
    out.wait_subscribers("sync", timeout=LIMIT)
    for i in range(4):
        out.send(b"x", group=f"t{i}")
    out.send(b"", group="end")
    threads[-1].join()
    assert seen == [(f"t{i}", b"x") for i in range(4)]
    assert set(into.groups) == {"end", "sync", "t0", "t1", "t2", "t3"}
