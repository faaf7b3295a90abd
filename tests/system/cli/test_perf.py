"""`mq perf` speaks libzmq's arguments and lines; here against itself and against pyzmq."""

import re

import pytest
import zmq
from programs import mq, run

LATENCY = re.compile(
    r"message size: 10 \[B\]\nroundtrip count: 200\naverage latency: \d+\.\d{3} \[us\]\n"
)
RATE = re.compile(
    r"message size: 10 \[B\]\nmessage count: 1000\n"
    r"mean throughput: \d+ \[msg/s\]\nmean throughput: \d+\.\d{3} \[Mb/s\]\n"
)


def test_latency(start, url):
    local = start(*mq("perf", "lat", "local", url, 10, 200))
    status, out, err = run(*mq("perf", "lat", "remote", url, 10, 200))
    assert status == 0 and LATENCY.fullmatch(out.decode()), (out, err)
    assert local.result()[:2] == (0, "")


@pytest.mark.parametrize("many", [(), ("--many", 64)])
def test_throughput(start, url, many):
    local = start(*mq("perf", "thr", "local", url, 10, 1000, *many))
    status, out, _ = run(*mq("perf", "thr", "remote", url, 10, 1000, *many))
    assert (status, out) == (0, b"")
    status, out, err = local.result()
    assert status == 0 and RATE.fullmatch(out), (out, err)


def test_throughput_from_another_library(start, url):
    local = start(*mq("perf", "thr", "local", url, 10, 1000))
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(url)
        for _ in range(1000):
            push.send(bytes(10))
        status, out, err = local.result()
    assert status == 0 and RATE.fullmatch(out), (out, err)


def test_a_wrong_size_is_said(start, url):
    local = start(*mq("perf", "thr", "local", url, 10, 1000))
    run(*mq("perf", "thr", "remote", url, 11, 1000, "-o", "linger=0"))
    status, _, err = local.result()
    assert status == 1 and "11 bytes" in err
