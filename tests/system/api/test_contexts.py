"""Contexts of Req and Rep, and requests that are sent again: threads, asyncio and trio, over inproc
and tcp; time-outs, cancelling, closing while somebody waits, providers that die or say nothing."""

import contextlib
import os
import threading

import pytest
from child import Child

import mqcore as mq
from mqcore.testing import until
from mqcore.testing.traffic import laws

LIMIT = 60


def provider(rep, n=3):
    """Contexts in threads that echo until the socket is closed."""
    def work(context):
        with context:
            try:
                while True:
                    context.send(b"re:" + context.recv())
            except mq.SocketClosed:
                pass

    threads = [threading.Thread(target=work, args=(rep.new_context(),)) for _ in range(n)]
    for thread in threads:
        thread.start()
    return threads


@pytest.fixture
def echo(linked):
    """A Req with a Rep that answers in three threads."""
    rep, req = linked("rep", "req", recv_timeout=LIMIT)
    threads = provider(rep)
    yield req
    rep.close(0)
    for thread in threads:
        thread.join()


def test_many_threads_ask_at_once(echo):
    wrong = []

    def ask(i):
        with echo.new_context() as context:
            for k in range(30):
                question = b"%d.%d" % (i, k)
                if context.request(question) != b"re:" + question:
                    wrong.append(question)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    assert echo.request(b"own") == b"re:own"     # the socket's own line is one more
    for thread in threads:
        thread.join()
    assert not wrong
    stats = laws(echo)
    assert (stats.sent, stats.received, stats.resent) == (601, 601, 0)


def test_many_tasks_ask_at_once(echo, loop):
    async def ask(i):
        async with echo.new_context() as context:
            for k in range(10):
                await context.asend_parts([b"%d" % i, b"%d" % k])
                assert await context.arecv_msg() is not None
                assert await context.arequest(b"%d" % i) == b"re:%d" % i

    async def main():
        await loop.both(*[lambda i=i: ask(i) for i in range(20)])

    loop.run(main)
    laws(echo)


def test_a_context_is_a_line_of_its_own(linked):
    rep, req = linked("rep", "req")
    one, two = req.new_context(recv_timeout=LIMIT), req.new_context(recv_timeout=0)
    assert (one.recv_timeout, two.recv_timeout, one.send_timeout) == (LIMIT, 0, None)
    assert one.socket is req and "Req" in repr(one)
    with pytest.raises(mq.StateError, match="no request to wait for"):
        one.recv()
    one.send(b"1")
    two.send(b"2")
    got = {bytes(m): m for m in (rep.recv_msg(timeout=LIMIT), rep.recv_msg(timeout=LIMIT))}
    with pytest.raises(mq.RecvTimeout, match="at once"):
        two.recv()
    got[b"2"].reply(b"b", b"c")
    assert two.recv_parts(timeout=LIMIT) == [b"b", b"c"]
    one.send(b"3")                               # gives up the first request
    got[b"1"].reply(b"late")
    third = rep.recv_msg(timeout=LIMIT)
    third.reply(b"three")
    assert one.recv() == b"three"
    one.send(b"4")
    one.abandon()
    with pytest.raises(mq.StateError):
        one.recv()
    one.close()
    one.close()
    assert one.closed and not two.closed
    with pytest.raises(mq.StateError, match="the context is closed"):
        one.send(b"5")
    rep.recv_msg(timeout=LIMIT).reply(b"nobody")
    laws(req)
    with pytest.raises(mq.UsageError, match="no option 'linger'"):
        req.new_context(linger=1)


def test_requests_that_wait_for_a_peer_are_the_contexts_own(ctx, url):
    rep = ctx.socket("rep", bind=url)
    address = rep.endpoints[0].url
    rep.unbind(address)
    req = ctx.socket("req", reconnect=0.01)
    req.connect(address)
    contexts = [req.new_context(recv_timeout=LIMIT) for _ in range(4)]
    for i, context in enumerate(contexts):
        context.send(b"old %d" % i)
        context.send(b"%d" % i)
    assert req.stats().waiting == 4
    contexts[1].abandon()
    contexts[2].close()
    assert req.stats().waiting == 2
    with pytest.raises(mq.RecvTimeout):
        contexts[0].recv(timeout=0)
    with pytest.raises(mq.StateError):
        contexts[1].recv(timeout=0)
    assert req.stats().dropped == {"cancelled": 6}
    rep.bind(address)
    for _ in range(2):
        request = rep.recv_msg(timeout=LIMIT)
        request.reply(b"to " + bytes(request))
    assert [contexts[i].recv() for i in (0, 3)] == [b"to 0", b"to 3"]
    laws(req)


@pytest.mark.parametrize("what", ["context", "socket"])
def test_closing_while_somebody_waits(linked, what):
    rep, req = linked("rep", "req")
    context = req.new_context()
    context.send(b"x")
    raised = []
    started = threading.Event()

    def wait():
        started.set()
        try:
            context.recv()
        except mq.Error as error:
            raised.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    context.close() if what == "context" else req.close(0)
    thread.join(LIMIT)
    assert raised == [mq.StateError if what == "context" else mq.SocketClosed]
    with pytest.raises(mq.SocketClosed if what == "socket" else mq.StateError):
        context.send(b"y")
    context.close()


def test_a_cancelled_request_costs_the_others_nothing(linked, loop):
    rep, req = linked("rep", "req")

    async def main():
        async with req.new_context() as one, req.new_context() as two:
            await loop.cut(0.02, lambda: one.arequest(b"never"))
            await two.asend(b"asked")
            taken = [await rep.arecv_msg(timeout=LIMIT) for _ in range(2)]
            for request in taken:
                await request.areply(bytes(request) + b"!")
            assert await two.arecv(timeout=LIMIT) == b"asked!"
            await one.asend(b"again")
            await (await rep.arecv_msg(timeout=LIMIT)).areply(b"and again")
            assert await one.arecv(timeout=LIMIT) == b"and again"
            with pytest.raises(mq.RecvTimeout):
                await one.arequest(b"x", timeout=0.01)

    loop.run(main)
    laws(req)


def test_rep_contexts_answer_their_own(linked):
    rep, req = linked("rep", "req")
    contexts = [rep.new_context(recv_timeout=LIMIT) for _ in range(3)]
    askers = [req.new_context(recv_timeout=LIMIT) for _ in range(3)]
    for i, asker in enumerate(askers):
        asker.send(b"%d" % i)
    taken = [context.recv() for context in contexts]
    for context, question in reversed(list(zip(contexts, taken, strict=True))):
        context.send_parts([b"re", question])
        with pytest.raises(mq.StateError, match="no request to answer"):
            context.send(b"twice")
    assert [asker.recv_parts() for asker in askers] == [[b"re", b"%d" % i] for i in range(3)]
    contexts[0].close()
    with pytest.raises(mq.StateError, match="closed"):
        contexts[0].recv()
    rep.close(0)
    with pytest.raises(mq.SocketClosed):
        contexts[1].recv()


def test_who_asked_may_have_left(linked):
    rep, req = linked("rep", "req")
    req.send(b"x")
    with rep.new_context() as context:
        assert context.recv(timeout=LIMIT) == b"x"
        req.close(0)
        assert until(lambda: not rep.peers(), LIMIT)
        context.send(b"y")
        assert rep.stats().dropped == {"peer_gone": 1}


def test_surveys_at_once_do_not_mix(linked, url, loop):
    first, surveyor = linked("respondent", "surveyor")
    second = surveyor.context.socket("respondent")
    second.connect(surveyor.bind(url.replace("test", "more")))
    surveyor.wait_peers(2, LIMIT)
    threads = provider(first, 2) + provider(second, 2)

    def expected(i):
        return [b"re:%d" % i] * 2

    async def ask(i):
        with surveyor.new_context() as context:
            got = []
            async with contextlib.aclosing(context.asurvey(b"%d" % i, deadline=LIMIT)) as answers:
                async for answer in answers:
                    got.append(answer)
                    if len(got) == 2:
                        break
            assert got == expected(i)

    async def main():
        await loop.both(*[lambda i=i: ask(i) for i in range(10)])

    loop.run(main)
    with surveyor.new_context() as one, surveyor.new_context() as two:
        one.send(b"1")
        two.send(b"2")
        assert [two.recv(timeout=LIMIT) for _ in range(2)] == expected(2)
        assert [one.recv(timeout=LIMIT) for _ in range(2)] == expected(1)
        assert set(one.survey(b"3", deadline=0.05)) <= set(expected(3))
        one.abandon()       # what was sent by send() is no part of a survey()
        with pytest.raises(mq.StateError, match="no survey"):
            one.recv()
    for rep in (first, second):
        rep.close(0)
    for thread in threads:
        thread.join()


def test_subscriptions_of_contexts_in_threads(linked):
    pub, sub = linked("pub", "sub", recv_timeout=LIMIT)
    sub.subscribe("end")
    lines = [sub.new_context() for _ in range(2)]
    got = {}

    def take(name, line):
        got[name] = []
        while not got[name] or got[name][-1] != b"end":
            got[name].append(line.recv())

    lines[0].subscribe("a", "end")
    lines[1].subscribe("b", "ab", "end")
    for topic in ("a", "b", "end"):
        pub.wait_subscribers(topic, timeout=LIMIT)
    threads = [threading.Thread(target=take, args=line)
               for line in zip(("0", "1", "own"), [*lines, sub], strict=True)]
    for thread in threads:
        thread.start()
    for i in range(200):
        pub.send(b"%s%d" % ((b"a", b"b", b"ab", b"c")[i % 4], i))
    pub.send(b"end")
    for thread in threads:
        thread.join(LIMIT)
    a, b, ab = ([b"%s%d" % (topic, i) for i in range(k, 200, 4)]
                for k, topic in enumerate((b"a", b"b", b"ab")))
    assert sorted(got.pop("0")) == sorted([*a, *ab, b"end"])
    assert sorted(got.pop("1")) == sorted([*b, *ab, b"end"])
    assert got == {"own": [b"end"]}
    lines[0].close()
    until(lambda: not pub._subscribers(b"a0") and pub._subscribers(b"ab"))
    with pytest.raises(mq.StateError, match="closed"):
        lines[0].recv(timeout=0)
    stats = sub.stats()
    [account] = stats.peers.values()     # a message is delivered once, to however many
    assert (account.delivered, account.queued_in, stats.received) == (151, 0, 203)
    assert account.dropped == stats.dropped == {}


def test_subscriptions_of_contexts_in_tasks(linked, loop):
    pub, sub = linked("pub", "sub", recv_timeout=LIMIT)

    async def main():
        with sub.new_context() as a, sub.new_context() as b:
            a.subscribe("a")
            b.subscribe("b")

            async def take(line):
                return [await line.arecv() for _ in range(50)]

            async def give():
                await pub.await_subscribers("a", timeout=LIMIT)
                await pub.await_subscribers("b", timeout=LIMIT)
                for i in range(50):
                    await pub.asend(b"a%d" % i)
                    await pub.asend(b"b%d" % i)

            return await loop.both(lambda: take(a), lambda: take(b), give)

    got = loop.run(main)
    assert got[:2] == [[b"%s%d" % (name, i) for i in range(50)] for name in (b"a", b"b")]
    assert sub.stats().dropped == {}


def test_sockets_without_contexts(ctx):
    assert not hasattr(ctx.socket("pull"), "new_context")
    assert ctx.socket("pull").context is ctx


def test_a_forked_child_may_not_use_them(linked):
    rep, req = linked("rep", "req")
    context = req.new_context(recv_timeout=LIMIT)
    context.send(b"x")
    pid = os.fork()
    if pid == 0:
        try:
            context.recv(timeout=0)
        except mq.Forked:
            del context
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    rep.recv_msg(timeout=LIMIT).reply(b"y")
    assert context.recv() == b"y"


def late(req):
    """Answers that came too late."""
    return sum(p.dropped_in.get("late_answer", 0) for p in laws(req).peers.values())


# -- sent again ------------------------------------------------------------------------------------

def test_a_silent_provider_is_passed_over(ctx, url):
    other = url.replace("test", "other")
    silent, good = ctx.socket("rep", bind=url), ctx.socket("rep", bind=other)
    req = ctx.socket("req", resend=0.05, recv_timeout=LIMIT)
    req.connect(silent.endpoints[0].url, prio=1)
    req.connect(good.endpoints[0].url, prio=2)
    req.wait_peers(2, LIMIT)
    threads = provider(good)
    with req.new_context() as context:
        context.send(b"a")
        first = silent.recv_msg(timeout=LIMIT)
        assert context.recv() == b"re:a"
        assert req.stats().resent >= 1
        assert context.request(b"b") == b"re:b" and req.request(b"c") == b"re:c"
        first.reply(b"too late")
        assert until(lambda: req.request(b"d") and late(req), LIMIT)
    good.close(0)
    silent.close(0)
    for thread in threads:
        thread.join()


def test_it_is_sent_again_though_nobody_calls(linked):
    rep, req = linked("rep", "req", resend=0.02)
    req.send(b"x")
    taken = [rep.recv_msg(timeout=LIMIT) for _ in range(3)]
    taken[2].reply(b"third")
    taken[0].reply(b"first")
    assert req.recv(timeout=LIMIT) == b"third"
    assert req.stats().resent >= 2
    req.resend = None
    assert req.resend is None
    req.resend = 0
    with pytest.raises(mq.OptionError):
        req.resend = -1


def test_closing_does_not_wait_for_alarms(linked):
    rep, req = linked("rep", "req", resend=3600)
    req.send(b"x")
    assert rep.recv_msg(timeout=LIMIT).parts == (b"x",)
    req.close(0)                                 # the leak watch sees the rest
    lonely = req.context.socket("req", resend=3600)
    lonely.close()


def test_providers_killed_under_load(ctx):
    """Each request is answered exactly once, by whoever is left."""
    good = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    with Child("mqcore", "rep", bind="tcp://127.0.0.1:*") as deaf:
        req = ctx.socket("req", resend=3600, recv_timeout=LIMIT,
                         connect=[deaf.url, good.endpoints[0].url])
        req.wait_peers(2, LIMIT)
        contexts = [req.new_context() for _ in range(40)]
        for i, context in enumerate(contexts):
            context.send(b"%d" % i)
        assert deaf.recv(LIMIT)                  # it has some, and takes them to its grave
        threads = provider(good)
        deaf.kill()
        assert [c.recv() for c in contexts] == [b"re:%d" % i for i in range(40)]
    for context in contexts:
        with pytest.raises(mq.StateError):
            context.recv()
    stats = laws(req)
    assert stats.received == 40 and stats.resent == 20
    good.close(0)
    for thread in threads:
        thread.join()


def test_a_request_waits_for_the_provider_to_come_back(ctx):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    url = rep.endpoints[0].url
    req = ctx.socket("req", connect=url, resend=3600, reconnect=0.01)
    req.send(b"x")
    assert rep.recv(timeout=LIMIT) == b"x"
    rep.close(0)
    assert until(lambda: not req.peers(), LIMIT)
    with pytest.raises(mq.RecvTimeout):
        req.recv(timeout=0)                      # no PeerGone
    again = ctx.socket("rep", bind=url)
    assert again.recv(timeout=LIMIT) == b"x"
    again.send(b"y")
    assert req.recv(timeout=LIMIT) == b"y"
