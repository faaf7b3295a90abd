"""The last stage of a job: workers send what they have, close, and are gone before the receiver
looks. Everything that their close() reported as delivered is received, by each pattern that waits,
over each transport, through devices, and by the names of pyzmq and pynng."""

import contextlib
import subprocess
import sys
import threading

import pytest
from waiting import until

import mqcore as mq

MARK, EACH, WORKERS = 10, 200, 6
PAIRS = {"push": "pull", "dealer": "router", "scatter": "gather", "client": "server",
         "pair": "pair", "req": "rep"}


@pytest.fixture(params=["tcp", "ipc", "tls+tcp", "ws", "shm", "inproc"])
def wire(request, authority, tmp_path):
    """(address, options of the end that binds, of the ends that connect)"""
    kind = request.param
    theirs, ours = (authority.server, authority.ca) if kind == "tls+tcp" else ({}, {})
    url = {"ipc": f"ipc://{tmp_path}/s", "shm": f"shm://{tmp_path}/s",
           "inproc": "inproc://finish"}.get(kind, f"{kind}://127.0.0.1:0")
    return url, theirs, ours


def work(ctx, pattern, url, options, i, each):
    s = ctx.socket(pattern)
    s.connect(url, wait=30, **options)
    s.send_many(b"%d %d" % (i, n) for n in range(each))
    report = s.close(linger=60)
    assert report and report.written == each, report


@contextlib.contextmanager
def finished(ctx, pattern, url, options):
    """What the workers send. All have been here and have left, except by shm, where close() waits
    until the receiver has taken what does not fit into its queue."""
    each = {"req": 1, "pair": MARK - 1}.get(pattern, EACH)
    threads = [threading.Thread(target=work, args=(ctx, pattern, url, options, i, each))
               for i in range(WORKERS)]
    later = url.startswith("shm") and each > MARK
    for thread in threads:
        thread.start()
        if pattern == "pair":                     # one peer at a time
            thread.join()
    for thread in threads * (not later):
        thread.join()
    yield [b"%d %d" % (i, n) for i in range(WORKERS) for n in range(each)]
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("pattern", PAIRS)
def test_all_that_was_delivered_is_received(ctx, wire, pattern):
    url, theirs, ours = wire
    with ctx.socket(PAIRS[pattern], recv_hwm=MARK if pattern != "req" else 3) as sink:
        url = sink.bind(url, **theirs).url
        with finished(ctx, pattern, url, ours) as sent:
            got = [bytes(sink.recv_msg(timeout=20).parts[-1]) for _ in sent]
        assert sorted(got) == sorted(sent)
        for i in range(WORKERS):                  # of each worker in its order
            mine = b"%d " % i
            assert [body for body in got if body.startswith(mine)] == \
                [body for body in sent if body.startswith(mine)]
        until(lambda: not sink._accounts()["live"])
        total = sink.stats().total
        assert (total.read, total.delivered, total.dropped) == (len(sent), len(sent), {})


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc"])
def test_a_mark_in_bytes(ctx, scheme, tmp_path):
    url = {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/s"}.get(scheme, "inproc://bytes")
    with ctx.socket("pull", bind=url, recv_hwm_bytes=250_000) as pull:
        at = pull.endpoints[0].url

        def worker():
            push = ctx.socket("push", connect=at)
            push.send_many([bytes(100_000)] * 10)
            assert push.close(linger=30)

        threads = [threading.Thread(target=worker) for _ in range(8)]
        for thread in threads:
            thread.start()
        if scheme == "inproc":                    # whoever came first has left
            until(lambda: pull.stats().departed, 20)
        assert [len(pull.recv(timeout=20)) for _ in range(80)] == [100_000] * 80
        for thread in threads:
            thread.join()


def test_through_a_device(ctx):
    front, back = ctx.socket("pull", recv_hwm=MARK), ctx.socket("push", send_hwm=MARK)
    at = front.bind("tcp://127.0.0.1:0").url
    with ctx.socket("pull", recv_hwm=MARK) as sink:
        back.connect(sink.bind("tcp://127.0.0.1:0"), wait=10)
        with mq.device(front, back), finished(ctx, "push", at, {}) as sent:
            assert sorted(sink.recv(timeout=20) for _ in sent) == sorted(sent)


def test_by_the_names_of_pyzmq(tmp_path):
    from mqcore import zmq

    with zmq.Context() as ctx, ctx.socket(zmq.PULL) as sink:
        sink.rcvhwm = MARK
        sink.bind(f"ipc://{tmp_path}/s")
        for i in range(WORKERS):
            with zmq.Context() as mine:
                push = mine.socket(zmq.PUSH)
                push.connect(f"ipc://{tmp_path}/s")
                for n in range(MARK):
                    push.send(b"%d %d" % (i, n))
                push.close(30_000)
        got = [sink.recv() for _ in range(WORKERS * MARK) if sink.poll(20_000)]
        assert sorted(got) == sorted(b"%d %d" % (i, n) for i in range(WORKERS) for n in range(MARK))


@pytest.fixture
def default_context():
    """pynng's sockets are of the default context; its threads end with the test."""
    yield
    mq.Context.default().close(0)


def test_by_the_names_of_pynng(default_context, tmp_path):
    from mqcore import nng

    at = f"ipc://{tmp_path}/s"
    with nng.Pull0(listen=at, recv_buffer_size=MARK, recv_timeout=20_000) as sink:
        for i in range(WORKERS):
            with nng.Push0(dial=at, send_timeout=20_000) as push:
                for n in range(MARK - 1):
                    push.send(b"%d %d" % (i, n))
        sent = [b"%d %d" % (i, n) for i in range(WORKERS) for n in range(MARK - 1)]
        assert sorted(sink.recv() for _ in sent) == sorted(sent)


def test_a_peer_that_leaves_before_it_is_admitted(default_context, tmp_path):
    """A callback of pynng's sees the pipe first, and the peer has left meanwhile."""
    from mqcore import nng

    seen, go_on = threading.Event(), threading.Event()

    def before(pipe):
        seen.set()
        assert go_on.wait(20)

    at = f"ipc://{tmp_path}/s"
    with nng.Pull0(recv_timeout=20_000) as sink:
        sink.add_pre_pipe_connect_cb(before)
        sink.listen(at)
        with nng.Push0(dial=at, send_timeout=20_000) as push:
            assert seen.wait(20)
            push.send(b"last words")
        until(lambda: not sink._core._links.present())
        go_on.set()
        assert sink.recv() == b"last words"


PYZMQ = """
import sys, zmq
for i in range(int(sys.argv[2])):
    with zmq.Context() as ctx, ctx.socket(zmq.PUSH) as push:
        push.connect(sys.argv[1])
        for n in range(int(sys.argv[3])):
            push.send(b"%d %d" % (i, n))
        push.close(20_000)
"""


def test_workers_of_pyzmq(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=MARK) as pull:
        subprocess.run([sys.executable, "-c", PYZMQ, pull.endpoints[0].url, str(WORKERS),
                        str(EACH)], check=True, timeout=60)
        sent = [b"%d %d" % (i, n) for i in range(WORKERS) for n in range(EACH)]
        assert sorted(pull.recv(timeout=20) for _ in sent) == sorted(sent)
        assert pull.stats().total.dropped == {}
