"""Many threads on one socket, each case that two of them could spoil for each other. Right with and
without a GIL."""

import contextlib
import threading

import pytest
from waiting import until

import mqcore as mq
from mqcore.devices.mover import DeviceCore

LIMIT = 20


def at_once(*calls):
    """All at the same moment, each in a thread of its own; what they raised."""
    start = threading.Barrier(len(calls))
    raised = []

    def run(call):
        start.wait(LIMIT)
        try:
            call()
        except Exception as error:
            raised.append(error)
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_a_request_is_answered_once(linked):
    """A large answer lets go of the GIL in the middle of reply()."""
    rep, req = linked("rep", "req")
    answer = b"x" * 200_000
    for _ in range(60):
        req.send(b"question")
        message = rep.recv_msg(timeout=LIMIT)
        raised = at_once(*[lambda m=message: m.reply(answer, timeout=LIMIT)] * 3)
        assert [type(error) for error in raised] == [mq.StateError] * 2
        assert message.replied and req.recv(timeout=LIMIT) == answer
    assert sum(facts["offered"] for _, facts in rep._accounts()["live"]) == 60


def test_a_reply_that_failed_may_be_tried_again(ctx):
    with ctx.socket("rep", bind="tcp://127.0.0.1:0") as rep:
        with ctx.socket("req", connect=rep.endpoints[0].url, linger=0) as req:
            req.send(b"question")
            message = rep.recv_msg(timeout=LIMIT)
        until(lambda: not rep.peers())
        for _ in range(2):
            with pytest.raises(mq.NoSuchPeer):
                message.reply(b"answer")
        assert not message.replied


def test_recv_into_of_many_threads_loses_nothing(linked):
    """Half of the buffers are too small: the messages go to the threads with larger ones."""
    pull, push = linked("pull", "push", send_hwm=None)
    total = 12_000
    got, small = [], []
    done = threading.Event()

    def take(size):
        buffer = bytearray(size)
        until(lambda: size < 60 or small or done.is_set())    # a small buffer has failed
        while not done.is_set():
            try:
                n = pull.recv_into(buffer, timeout=0.05)
            except mq.MessageTooLarge:
                small.append(1)
            except mq.RecvTimeout:
                continue
            else:
                got.append(bytes(buffer[:n]))
                if len(got) >= total:
                    done.set()

    def send():
        for n in range(total):
            push.send(b"%060d" % n, timeout=LIMIT)
    until_done = threading.Timer(LIMIT, done.set)
    until_done.start()
    assert not at_once(send, *[lambda s=size: take(s) for size in (8, 64, 8, 64)])
    until_done.cancel()
    assert sorted(got) == [b"%060d" % n for n in range(total)] and small
    [(_, facts)] = pull._accounts()["live"]
    assert (facts["read"], facts["delivered"]) == (total, total)


def test_what_recv_into_had_no_room_for_is_counted_at_close(linked):
    pull, push = linked("pull", "push")
    for _ in range(2):
        push.send(b"too large for four")
    for _ in range(2):
        with pytest.raises(mq.MessageTooLarge):
            pull.recv_into(bytearray(4), timeout=LIMIT)
    assert pull._accounts()["received"] == 1      # the second try found the first message again
    pull.close()
    total = pull._accounts()["total"]
    assert (total["read"], total["delivered"], sum(total["in_dropped"])) == (2, 0, 2)
    assert pull._accounts()["received"] == 0


def test_messages_without_room_keep_their_order(linked):
    pull, push = linked("pull", "push")
    for n in range(3):
        push.send(b"message %d" % n)
    with pytest.raises(mq.MessageTooLarge):
        pull.recv_into(bytearray(4), timeout=LIMIT)
    assert mq.poll([pull], timeout=0)
    assert pull.recv_many(10, timeout=LIMIT)[0] == b"message 0"


def test_one_plain_request_at_a_time(linked):
    """Two threads in recv() of a REP: one gets the request, and only its answer is possible."""
    rep, req = linked("rep", "req")
    for _ in range(100):
        req.send(b"question")
        got = []
        raised = at_once(*[lambda: got.append(rep.recv(timeout=LIMIT))] * 2)
        assert got == [b"question"] and [type(e) for e in raised] == [mq.StateError]
        rep.send(b"answer")
        assert req.recv(timeout=LIMIT) == b"answer"


def test_a_receive_that_gave_nothing_claims_nothing(linked):
    rep, req = linked("rep", "req")
    for call in (rep.recv, rep.recv_parts, rep.recv_many, lambda **kw: rep.recv_into(
            bytearray(9), **kw)):
        for _ in range(2):
            with pytest.raises(mq.RecvTimeout):
                call(timeout=0.01)
    req.send(b"question")
    assert rep.recv(timeout=LIMIT) == b"question"
    with pytest.raises(mq.StateError):
        rep.recv(timeout=0)


def test_one_device_at_a_time_owns_a_socket(ctx):
    front = ctx.socket("pull", bind="inproc://front")
    backs = [ctx.socket("push", bind=f"inproc://back{n}") for n in range(4)]
    for _ in range(50):
        made = []
        raised = at_once(*[lambda b=back: made.append(DeviceCore(front, b)) for back in backs])
        assert len(made) == 1 and [type(e) for e in raised] == [mq.UsageError] * 3
        for back in backs:
            if back is not made[0].back:
                with contextlib.suppress(mq.SendTimeout):
                    back.send(b"mine", timeout=0)     # it was given back
        made[0].release()


def test_a_thread_that_receives_is_told_of_the_device(ctx):
    front = ctx.socket("pull", bind="inproc://front")
    back = ctx.socket("push", bind="inproc://back")
    sink = ctx.socket("pull", connect="inproc://back")
    raised = []

    def receive():
        try:
            front.recv(timeout=LIMIT)
        except mq.UsageError as error:
            raised.append(error)
    threads = [threading.Thread(target=receive) for _ in range(3)]
    for thread in threads:
        thread.start()
    device = mq.device(front, back)
    for thread in threads:
        thread.join(LIMIT)
    assert [str(error) for error in raised] == [str(raised[0])] * 3
    assert "a device owns this socket" in str(raised[0])
    with ctx.socket("push", connect="inproc://front") as push:
        push.send(b"through")
        assert sink.recv(timeout=LIMIT) == b"through"
    device.stop()


def test_lazy_attributes_are_one_object(linked):
    pull, push = linked("pull", "push")
    push.send(b"x")
    message = pull.recv_msg(timeout=LIMIT)
    seen = []
    assert not at_once(*[lambda: seen.append(message.peer)] * 8)
    assert len({id(peer) for peer in seen}) == 1


def test_a_context_is_closed_once(ctx):
    with ctx.socket("req", bind="inproc://asked") as req:
        for _ in range(100):
            context = req.new_context()
            assert not at_once(context.close, context.close)
            assert context.closed


def test_the_data_plane_stops_once(ctx):
    from mqcore.binding.plane import PlaneCore
    for _ in range(20):
        plane = PlaneCore()
        assert not at_once(plane.stop, plane.stop)
        plane.shut()


def switches(threads):
    """How often these threads went to sleep."""
    total = 0
    for thread in threads:
        with open(f"/proc/self/task/{thread.native_id}/status") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("voluntary"))
    return total


def test_a_message_wakes_few_of_the_threads_that_wait_for_one(linked):
    """One takes it; the others need not look."""
    pull, push = linked("pull", "push")
    count, messages = 24, 100
    got = threading.Semaphore(0)

    def take():
        with contextlib.suppress(mq.SocketClosed):
            while True:
                pull.recv()
                got.release()
    threads = [threading.Thread(target=take) for _ in range(count)]
    for thread in threads:
        thread.start()
    push.send(b"first")
    assert got.acquire(timeout=LIMIT)
    before = switches(threads)
    for _ in range(messages):
        push.send(b"x")
        assert got.acquire(timeout=LIMIT)
    woken = switches(threads) - before
    pull.close()
    for thread in threads:
        thread.join(LIMIT)
    assert woken < messages * count


def test_threads_that_come_go_and_give_up_leave_no_message_lying(linked):
    """Some wait for ever, some for a moment, some need more room than they have."""
    pull, push = linked("pull", "push")
    count = 3000
    got = []

    def take(me):
        with contextlib.suppress(mq.SocketClosed):
            n = 0
            while True:
                n += 1
                with contextlib.suppress(mq.RecvTimeout, mq.MessageTooLarge):
                    if me % 3 == 0:
                        got.append(pull.recv())
                    elif me % 3 == 1:
                        got.append(pull.recv(timeout=(n % 7) / 5000))
                    else:
                        room = bytearray(5 if n % 2 else 2)
                        got.append(bytes(room[:pull.recv_into(room, timeout=(n % 5) / 3000)]))
    threads = [threading.Thread(target=take, args=(me,)) for me in range(9)]
    for thread in threads:
        thread.start()
    for n in range(count):
        push.send(b"%d" % n)
        if n % 50 == 0:
            until(lambda n=n: len(got) == n + 1, LIMIT)   # nobody sends: what lies, lies for ever
    until(lambda: len(got) == count, LIMIT)
    pull.close()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert sorted(map(int, got)) == list(range(count))
