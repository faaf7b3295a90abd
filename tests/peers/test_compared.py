"""What README.md's table says of the other two libraries, asked of them."""

import pynng
import pytest
import zmq

SOON = 500          # ms: how long a call waits that has nothing to wait for
LIMIT = 60_000      # ms


@pytest.fixture
def context():
    with zmq.Context() as made:
        made.linger = 0
        yield made


def test_pyzmq_queues_in_the_endpoint(context, tmp_path):
    with context.socket(zmq.PUSH) as push:
        push.connect(f"ipc://{tmp_path}/nobody")
        push.send(b"x", zmq.NOBLOCK)


def test_pynng_blocks_without_a_peer():
    with pynng.Push0(send_timeout=SOON) as push:
        with pytest.raises(pynng.Timeout) as caught:
            push.send(b"x")
    assert not isinstance(caught.value, TimeoutError)


def test_pyzmq_does_not_send_a_request_again(context, tmp_path):
    url = f"ipc://{tmp_path}/s"
    with context.socket(zmq.REQ) as req:
        with context.socket(zmq.REP) as dying:
            dying.bind(url)
            req.connect(url)
            req.send(b"question")
            assert dying.recv() == b"question"
        with context.socket(zmq.REP) as fresh:
            fresh.bind(url)
            fresh.rcvtimeo = req.rcvtimeo = SOON
            for sock in (fresh, req):
                with pytest.raises(zmq.Again):
                    sock.recv()


def test_pynng_sends_a_request_to_another_server(tmp_path):
    with pynng.Req0(recv_timeout=LIMIT) as req, \
            pynng.Rep0(listen=f"ipc://{tmp_path}/b", recv_timeout=LIMIT) as other:
        with pynng.Rep0(listen=f"ipc://{tmp_path}/a", recv_timeout=LIMIT) as dying:
            req.dial(f"ipc://{tmp_path}/a", block=True)
            req.send(b"question")
            assert dying.recv() == b"question"
            req.dial(f"ipc://{tmp_path}/b", block=True)
        assert other.recv() == b"question"
        other.send(b"answer")
        assert req.recv() == b"answer"
