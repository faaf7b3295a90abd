"""The cluster programs of examples/, as processes."""

from pathlib import Path

import pytest
from programs import mq, run, starter

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def start():
    with starter() as function:
        yield function


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "adder.key"
    status, out, _ = run(*mq("cluster", "key", "new", path))
    assert status == 0 and out.startswith(b"offer ")
    return path


def test_an_adder_found_by_name(start, key):
    first = start(EXAMPLES / "cluster_adder.py", key)
    seed = first.line()
    second = start(EXAMPLES / "cluster_adder.py", key, seed)
    other = second.line()

    def ask(*words):
        return run(EXAMPLES / "cluster_ask.py", key, *words)[:2]

    assert ask(seed, 20, 22) == (0, b"42\n")
    assert ask(other, "sum", 1, 2, 3) == (0, b"1\n3\n6\n")
    status, out = ask(seed, "load")
    lines = dict(line.split() for line in out.decode().splitlines())
    assert status == 0 and set(lines) == {seed, other} and sum(map(int, lines.values())) == 1
    assert first.end()[0] == 0          # it drains and leaves
    assert ask(other, 1, 1) == (0, b"2\n")
    assert ask(other, "x", "y")[0] == 1


def test_prices(start, key):
    seed = start(EXAMPLES / "cluster_adder.py", key).line()
    watch = start(EXAMPLES / "cluster_prices.py", key, seed, "watch", "px.*")
    assert watch.line() == "ready"
    status, out, _ = run(EXAMPLES / "cluster_prices.py", key, seed, "feed", "px.EUR", "1.08",
                         "fx.EUR", "9", "px.USD", "0.92")
    assert status == 0
    assert out.split(b"\n")[:3] == [b"px.EUR 1 node(s)", b"fx.EUR 0 node(s)", b"px.USD 1 node(s)"]
    assert [watch.line(), watch.line()] == ["px.EUR 1.08", "px.USD 0.92"]
