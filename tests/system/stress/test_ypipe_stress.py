"""Two real threads on one ypipe: order, bodies, wake-ups and memory, and the same under
ThreadSanitizer."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mqcore.testing.native.pipe_stress import stress

ROOT = Path(__file__).parents[3]
PARTS = int(os.environ.get("MQCORE_STRESS", "1000000"))


def check(seen, parts):
    assert seen["received"] == parts, seen
    assert seen["wrong"] == 0 and seen["failed"] == 0, seen
    assert seen["lost_wakeups"] == 0, seen
    assert seen["posts"] == seen["sleeps"] + 1, f"a wake-up for each sleep, no more: {seen}"
    assert seen["live"] == 0, seen


@pytest.mark.parametrize("batch", [1, 2, 16, 300, 5000])
def test_every_part_arrives_once_and_in_order(batch, seed):
    seen = stress(PARTS, seed=seed, batch=batch)
    check(seen, PARTS)
    assert seen["unwritten"] > 0, "the taking back was not exercised"


@pytest.mark.parametrize("parts", [1, 2, 7, 8, 9, 263, 264, 265])
def test_short_runs_around_the_chunk_borders(parts, seed):
    for i in range(50):
        check(stress(parts, seed=seed + i, batch=1 + i % 5), parts)


def test_plain_stream(seed):
    check(stress(PARTS, seed=seed, batch=256, plain=True), PARTS)


def test_the_stress_can_fail(seed):
    """Publishing by a plain store loses wake-ups sooner or later; the counters see it. On a busy
    machine, where the two threads seldom run at the same time, that may take a while."""
    end = time.monotonic() + 250
    while time.monotonic() < end:
        seen = stress(200_000, seed=seed, batch=1, plant=True, wait=1)
        if seen["lost_wakeups"]:
            return
        assert not seen["wrong"]
        seed += 1
    pytest.fail("the planted mistake was never noticed")


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Runs a program in a process of its own whose mallocs are counted; what it prints, split."""
    library = tmp_path_factory.mktemp("malloc") / "malloc_count.so"
    compiler = shutil.which("cc") or "gcc"
    source = ROOT / "tests" / "data" / "malloc_count.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)

    def run(program: str) -> list[str]:
        return subprocess.run([sys.executable, "-c", COUNTERS + program], check=True, timeout=200,
                              capture_output=True, text=True,
                              env={**os.environ, "LD_PRELOAD": str(library)}).stdout.split()
    return run


COUNTERS = """
import ctypes
from mqcore.testing.native.base_bench import BasePipe, BasePool, SIZES
calls = ctypes.CDLL(None).malloc_count_calls
live = ctypes.CDLL(None).malloc_count_live
calls.restype, live.restype = ctypes.c_uint64, ctypes.c_int64
"""


def test_a_steady_stream_allocates_nothing(counted):
    few, many, counts = counted("""
pipe = BasePipe(BasePool())
assert pipe.spin(2000, 100)          # the spare chunk is there now
def during(rounds):
    before = calls()
    assert pipe.spin(rounds, 100)
    return calls() - before
during(1)
print(during(1), during(20000), calls() > 1000)
""")
    assert counts == "True", "the counter does not count"
    assert many == few, f"2,000,000 messages made {many} calls of malloc, 100 made {few}"


def test_chunks_taken_back_are_freed(counted):
    """Unwriting over the border of a chunk gives the chunk back, and so does the end of a pipe."""
    [grown] = counted("""
def round():
    pipe = BasePipe(BasePool())
    for _ in range(20):
        for i in range(SIZES["CHUNK"] + SIZES["CHUNK_FIRST"] + 1):
            pipe.write(b"", complete=False)
        while pipe.unwrite() is not None:
            pass
def growth(rounds):
    before = live()
    for _ in range(rounds):
        round()
    return live() - before
growth(5)
print(growth(50))
""")
    assert int(grown) < 50, f"{grown} blocks more are alive after 1000 times of taking back"


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.tsan
def test_thread_sanitizer():
    spec = importlib.util.spec_from_file_location("tsan", ROOT / "tools" / "tsan.py")
    tsan = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tsan)
    library = tsan.runtime()
    if library is None:
        pytest.skip("this compiler has no ThreadSanitizer")
    tsan.build(verbose=False)
    clean = tsan.run(library, 100_000, plant=False)
    planted = tsan.run(library, 20_000, plant=True)
    assert tsan.verdict(clean, planted) is None
