"""The native loops, the parts alone and the counts run, tiny. No time is judged here."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mqcore.testing.native.base_bench import BasePool
from mqcore.testing.native.native_bench import Loops, handles
from programs import run

import mqcore as mq
from mqcore.testing import leaks

PERF = Path(__file__).resolve().parents[3] / "perf"
SIZES = (0, 16, 100, 70_000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("many", [False, True])
def test_what_the_loops_send_arrives(size, many):
    texts = [bytes([i]) * size for i in range(7)]
    with mq.Context() as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:0")
        push = context.socket("push", connect=pull.endpoints[0].url)
        push.wait_peers(1, 10)
        Loops(push, texts).give(20, many)
        assert [pull.recv(timeout=10) for _ in range(20)] == [texts[i % 7] for i in range(20)]
        for i in range(20):
            push.send(texts[i % 7])
        Loops(pull, []).take(20, many)
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=0)
        assert sum(peer.delivered for peer in pull.stats().peers.values()) == 40
    assert not any(leaks().values())


def test_native_round_trips():
    with mq.Context() as context:
        rep = context.socket("rep", bind="tcp://127.0.0.1:0")
        req = context.socket("req", connect=rep.endpoints[0].url)
        req.wait_peers(1, 10)
        thread = threading.Thread(target=Loops(rep, []).echo, args=(30,))
        thread.start()
        trips = Loops(req, [b"x" * 16, b"y" * 100]).ask(30)
        thread.join()
        assert len(trips) == 30 and all(trip > 0 for trip in trips)


def test_a_loop_ends_with_the_sockets_error():
    with mq.Context() as context:
        pull = context.socket("pull", bind="inproc://loops")
        with pytest.raises(mq.UsageError):
            Loops(pull, [b"x"]).give(1)


@pytest.mark.parametrize("size", SIZES)
def test_handles_are_made_and_closed(size):
    keeper = BasePool()
    assert handles(keeper, bytes(size), 1000) > 0
    assert keeper.live == 0


@pytest.mark.slow
def test_native_side_by_side():
    args = ("--size", 16, "--rounds", 2, "--seconds", 0, "--even-if-busy", "--place", "free")
    status, out, err = run(PERF / "native.py", *args)
    assert status == 0, err
    assert out.count(b"| mqcore |") == 2 and out.count(b"| mqcore, many a call |") == 1
    assert b"| libzmq | left out: " in out or out.count(b"| libzmq |") == 2


def test_without_libzmq_the_rows_say_so(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PERF))
    import native

    broken = tmp_path / "libzmq.c"
    broken.write_text("#include <no/zmq.h>\n")
    monkeypatch.setattr(native, "SOURCE", broken)
    with native.built() as (program, why):
        assert program is None and why.startswith("left out: ")


@pytest.mark.parametrize("name", ["ypipe", "wire", "topics", "handle", "journal"])
def test_parts_alone(name, tmp_path):
    pyperf = pytest.importorskip("pyperf")
    out = tmp_path / "out.json"
    command = [sys.executable, PERF / "micro" / f"{name}.py", "--debug-single-value", "-o", out]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    suite = pyperf.BenchmarkSuite.load(str(out))
    assert len(suite) >= 3 and all(bench.mean() > 0 for bench in suite)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_calls_are_counted_by_side():
    args = ("--lib", "mqcore", "--count", 2000)
    status, out, err = run(PERF / "syscalls.py", *args)
    if "neither" in err:
        pytest.skip("tracing is not allowed here")
    assert status == 0, err
    assert b"| mqcore |" in out
