"""The demonstration, and that it can fail: a total that is off by one ends with status 1."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PATIENCE = 200


def demo(change=""):
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\nimport demo, demo_input\n"
        f"{change}\nsys.exit(demo.main())"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )


def test_it_runs():
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equals what plain Python computes" in done.stdout and "pyzmq" in done.stdout


@pytest.mark.slow
def test_one_word_too_many_is_found():
    done = demo(
        "counted = demo_input.expected_words()\ncounted['mq'] += 1\n"
        "demo_input.expected_words = lambda: counted"
    )
    assert done.returncode == 1 and "WRONG: words counted" in done.stdout, done.stdout + done.stderr
