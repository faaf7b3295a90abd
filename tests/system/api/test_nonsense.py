"""Arguments that mean nothing are refused at once, by an error that says what was wanted."""

import asyncio
import copy
import datetime
import os
import pickle

import numpy as np
import pytest

import mqcore as mq
from mqcore import security


@pytest.fixture
def push(linked):
    return linked("pull", "push")[1]


TIMEOUTS = ["1", b"1", True, -1, -0.5, float("nan"), datetime.timedelta(seconds=1), [1], 1j]


@pytest.mark.parametrize("timeout", TIMEOUTS, ids=repr)
def test_a_timeout_is_refused_by_a_call_that_need_not_wait(linked, timeout):
    pull, push = linked("pull", "push")
    push.send_many([b"x"] * 9)
    view = bytearray(9)

    async def run():
        for call in (push.asend, push.asend_parts, push.asend_many, push.asend_ref):
            with pytest.raises(mq.UsageError, match="timeout must"):
                await call([b"x"] if call in (push.asend_parts, push.asend_many) else b"x",
                           timeout=timeout)
        for call in (pull.arecv, pull.arecv_parts, pull.arecv_msg, pull.arecv_many,
                     pull.arecv_batch, lambda **kw: pull.arecv_into(view, **kw)):
            with pytest.raises(mq.UsageError, match="timeout must"):
                await call(timeout=timeout)

    for call in (push.send, push.send_ref, lambda data, **kw: push.send_parts([data], **kw),
                 lambda data, **kw: push.send_many([data], **kw)):
        with pytest.raises(mq.UsageError, match="timeout must"):
            call(b"x", timeout=timeout)
    for call in (pull.recv, pull.recv_parts, pull.recv_msg, pull.recv_many, pull.recv_batch,
                 lambda **kw: pull.recv_into(view, **kw)):
        with pytest.raises(mq.UsageError, match="timeout must"):
            call(timeout=timeout)
    asyncio.run(run())
    got = []
    while len(got) < 9:
        got += pull.recv_many(timeout=5)
    with pytest.raises(mq.RecvTimeout):
        pull.recv(timeout=0)
    assert got == [b"x"] * 9  # nothing was sent, and nothing taken


def test_polling_a_socket_instead_of_a_list_takes_none_of_its_messages(linked):
    pull, push = linked("pull", "push")
    push.send(b"x")
    assert mq.poll([pull], timeout=5)
    for wrong, words in ((pull, r"poll\(\[sock\]\)"), (5, "not int"), (None, "not NoneType")):
        with pytest.raises(mq.UsageError, match=words):
            mq.poll(wrong, timeout=0)
        with pytest.raises(mq.UsageError, match=words):
            asyncio.run(mq.apoll(wrong, timeout=0))
    assert pull.recv(timeout=0) == b"x"


@pytest.mark.parametrize("parts", [b"ab", "ab", 5, None, {b"a": 1}, {b"a"}, frozenset([b"a"])],
                         ids=repr)
def test_parts_are_a_sequence(ctx, linked_at, parts):
    push = ctx.socket("push", connect="inproc://elsewhere")
    rep, req = linked_at("inproc://here", "rep", "req")
    with pytest.raises(mq.UsageError, match="takes a sequence of parts"):
        push.send_parts(parts)
    with pytest.raises(mq.UsageError, match="takes a sequence of parts"):
        asyncio.run(push.asend_parts(parts))
    req.send(b"question")
    with rep.new_context() as line:
        assert line.recv(timeout=5) == b"question"
        with pytest.raises(mq.UsageError, match="takes a sequence of parts"):
            line.send_parts(parts)
        line.send(b"answer")
    assert req.recv(timeout=5) == b"answer"


@pytest.mark.parametrize("messages", [b"ab", "ab", bytearray(b"ab"), 5, None, {b"a": 1}], ids=repr)
def test_send_many_takes_several_messages(push, messages):
    with pytest.raises(mq.UsageError, match="takes several messages"):
        push.send_many(messages)
    with pytest.raises(mq.UsageError, match="takes several messages"):
        asyncio.run(push.asend_many(messages))


def test_a_generator_is_several(linked):
    pull, push = linked("pull", "push")
    push.send_parts(part for part in (b"a", b"b"))
    assert push.send_many(one for one in (b"c", [b"d", b"e"])) == 2
    assert [pull.recv_parts(timeout=5) for _ in range(3)] == [[b"a", b"b"], [b"c"], [b"d", b"e"]]


@pytest.mark.parametrize("buffer,words", [
    (b"abc", "can only be read"), (None, "not NoneType"), ("abc", "not str"), (5, "not int"),
    (np.zeros(8, "u1")[::2], "with gaps")], ids=repr)
def test_recv_into_takes_a_writable_buffer(linked, buffer, words):
    pull, push = linked("pull", "push")
    push.send(b"x")
    with pytest.raises(mq.UsageError, match=words):
        pull.recv_into(buffer)
    with pytest.raises(mq.UsageError, match=words):
        asyncio.run(pull.arecv_into(buffer))
    assert pull.recv(timeout=5) == b"x"


def test_the_awaitable_twins_refuse_what_the_others_refuse(ctx):
    pull, push, pub = ctx.socket("pull", bind="inproc://a"), ctx.socket("push"), ctx.socket("pub")

    async def run():
        for call, words in (
                (lambda: pull.arecv_many("3"), "max must be a whole number"),
                (lambda: pull.arecv_many(0), "max must be between 1"),
                (lambda: pull.arecv_batch(max_bytes=None), "max_bytes must be a whole number"),
                (lambda: pull.await_peers("1"), "whole number of peers"),
                (lambda: pub.await_subscribers("a", -1), r"subscribers \(0 or more\), not -1"),
                (lambda: push.aconnect("inproc://a", wait="soon"), "wait must be seconds"),
                (lambda: push.aconnect("inproc://a", wait=-1), "wait must not be negative"),
                (lambda: push.asend_batch(b"x", 5), "offsets"),
                (lambda: pull.endpoints[0].await_ready("x"), "timeout must be seconds")):
            with pytest.raises(mq.UsageError, match=words):
                await call()

    asyncio.run(run())
    assert push.endpoints == ()


def test_topics_and_groups_of_constructors(ctx):
    for wrong in (5, None, True):
        with pytest.raises(mq.UsageError, match=r"Sub\(topics=...\) takes a list"):
            ctx.socket("sub", topics=wrong)
        with pytest.raises(mq.UsageError, match=r"Dish\(groups=...\) takes a list"):
            ctx.socket("dish", groups=wrong)
    assert ctx.socket("sub", topics=bytearray(b"ab")).topics == (b"ab",)
    assert ctx.socket("sub", topics=memoryview(b"ab")).topics == (b"ab",)


def test_a_context_is_a_context(ctx):
    for wrong in ("x", 5, object()):
        with pytest.raises(mq.UsageError, match="context= must be a mqcore.Context, not "):
            mq.Push(context=wrong)
    with pytest.raises(mq.UsageError, match="lead_tick"):
        mq.Context(lead_tick=True)
    with pytest.raises(AttributeError):
        mq.Context().linger = 0  # pyzmq's way to set a default: here it is Context(linger=0)


def test_linger_of_a_context_is_refused_before_a_socket_closes(ctx, capfd):
    socks = [ctx.socket("pair") for _ in range(3)]
    for wrong in ("x", -1, float("nan"), True):
        with pytest.raises(mq.UsageError, match="linger must"):
            ctx.close(wrong)
        with pytest.raises(mq.UsageError, match="linger must"):
            socks[0].close(wrong)
    assert not any(sock.closed for sock in socks)
    assert capfd.readouterr().err == ""


def test_a_context_that_answers_keeps_a_request_whose_answer_failed(linked):
    rep, req = linked("rep", "req")
    req.send(b"question")
    with rep.new_context() as line:
        line.recv(timeout=5)
        for wrong in ("text", 5, [b"list"]):
            with pytest.raises(mq.UsageError):
                line.send(wrong)
            with pytest.raises(mq.UsageError):
                asyncio.run(line.asend(wrong))
        line.send(b"answer")
        with pytest.raises(mq.StateError, match="no request to answer"):
            line.send(b"again")
    assert req.recv(timeout=5) == b"answer"


def test_a_poller_is_asked_about_anything(ctx):
    with mq.Poller() as poller:
        for wrong in ([], {}, "x", None):
            assert wrong not in poller
            with pytest.raises((mq.UsageError, KeyError)):
                poller.unregister(wrong)


def test_a_poller_follows_a_number_that_became_another_files():
    with mq.Poller() as poller:
        first, other = os.pipe()
        old = open(first, "rb", buffering=0)
        poller.register(old)
        old.close()
        os.close(other)
        again, end = os.pipe()
        assert again == first
        new = open(again, "rb", buffering=0)
        poller.register(new)
        os.write(end, b"x")
        assert poller.poll(5) == [(new, mq.Ready.READ)]
        os.close(end)
        new.close()


class Forgetful(mq.Push):
    def __init__(self):
        """It does not call super().__init__()."""


@pytest.mark.parametrize("make", [Forgetful, lambda: mq.Push.__new__(mq.Push)])
def test_a_socket_that_was_never_opened(make):
    sock = make()
    assert "never opened" in repr(sock)
    assert "never opened" in sock.explain()
    assert sock.closed
    assert sock.endpoints == ()
    assert sock.close() == mq.CloseReport()
    for call in (lambda: sock.send(b"x"), lambda: sock.bind("inproc://a"), sock.recv, sock.stats,
                 sock.peers, sock.events, sock.fileno, sock.wait_peers, sock.__enter__,
                 lambda: mq.poll([sock], 0), lambda: mq.Poller().register(sock)):
        with pytest.raises(mq.SocketClosed, match=r"super\(\).__init__"):
            call()
    for acall in (sock.arecv, sock.await_peers, lambda: sock.asend(b"x"),
                  lambda: mq.apoll([sock]), lambda: sock.aconnect("inproc://a")):
        async def run(acall=acall):
            with pytest.raises(mq.SocketClosed, match=r"super\(\).__init__"):
                await acall()
        asyncio.run(run())


def test_what_owns_threads_and_descriptors_cannot_be_copied(ctx):
    sock = ctx.socket("req", bind="inproc://a")
    with sock.events() as events, mq.Poller() as poller, sock.new_context() as line:
        for one in (sock, ctx, sock.endpoints[0], events, poller, line):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(mq.UsageError, match="cannot be pickled"):
                    way(one)
        poller.register(sock)
        assert poller.poll(0) == []
    with mq.device(ctx.socket("pull"), ctx.socket("push")) as device:
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(mq.UsageError, match="cannot be pickled"):
                way(device)


def test_the_second_connection_to_an_address_ends_and_not_the_first(ctx):
    pull, push = ctx.socket("pull", bind="tcp://127.0.0.1:0"), ctx.socket("push")
    first, second = (push.connect(pull.endpoints[0], wait=5) for _ in range(2))
    second.close()
    assert push.endpoints == (first,)
    assert (first.state, second.state) == ("connected", "closed")
    push.send(b"x")
    assert pull.recv(timeout=5) == b"x"
    push.disconnect(first)
    assert push.endpoints == ()


@pytest.mark.parametrize("wrong", [None, 1.5, object(), {}, [1]],
                         ids=["none", "float", "object", "dict", "list"])
def test_a_send_without_a_copy_takes_a_buffer(push, wrong):
    with pytest.raises(mq.UsageError, match="send_ref.. takes a buffer, not "):
        push.send_ref(wrong)


@pytest.mark.parametrize("wrong", [None, 1, 1.5, object()], ids=["none", "int", "float", "object"])
def test_a_radio_takes_sequences_like_the_others(ctx, wrong):
    with ctx.socket("radio") as radio:
        with pytest.raises(mq.UsageError, match="send_many.. takes several messages, not "):
            radio.send_many(wrong)
        with pytest.raises(mq.UsageError, match="send_parts.. takes a sequence of parts, not "):
            radio.send_parts(wrong)


@pytest.mark.parametrize("wrong", [None, 1, b"x", [], {}], ids=repr)
def test_what_is_no_path_is_refused_by_name(wrong):
    with pytest.raises(mq.UsageError, match="path must be a str or a path, not "):
        security.load_certificate(wrong)
    with pytest.raises(mq.UsageError, match="folder must be a str or a path, not "):
        security.load_certificates(wrong)


@pytest.mark.parametrize("wrong", [1, "pull", [], {}], ids=repr)
def test_a_device_takes_sockets(ctx, wrong):
    with ctx.socket("pull") as front, pytest.raises(mq.UsageError, match="must be sockets, not "):
        mq.device(front, wrong)
