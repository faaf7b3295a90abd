"""A traced program sends foreign peers the message alone."""

import pytest

import mqcore
from mqcore import trace

zmq = pytest.importorskip("zmq")
pynng = pytest.importorskip("pynng")


def test_foreign_peers_never_see_a_trace(tmp_path):
    with mqcore.Context() as ctx, zmq.Context() as foreign, trace.span("traced"):
        with mqcore.Push(bind=f"ipc://{tmp_path}/z", context=ctx) as push, \
                foreign.socket(zmq.PULL) as pull:
            pull.connect(f"ipc://{tmp_path}/z")
            push.send_parts([b"a", b"b"], timeout=60)
            assert pull.poll(60_000) and pull.recv_multipart() == [b"a", b"b"]
        with mqcore.Push(bind=f"ipc://{tmp_path}/n", context=ctx) as push, \
                pynng.Pull0(dial=f"ipc://{tmp_path}/n", recv_timeout=60_000) as pull:
            push.send(b"a", timeout=60)
            assert pull.recv() == b"a"
