"""The costs of the console, measured for a moment. No figure is judged here."""

import json
from pathlib import Path

import pytest
from browser import CHROMIUM
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"


@pytest.mark.skipif(CHROMIUM is None,
                    reason="no chromium here (Debian: apt-get install chromium)")
def test_figures():
    status, out, err = run(PERF / "console.py", "--sockets", 8, "--peers", 16, "--processes", 2,
                           "--seconds", 3)
    assert status == 0, err
    found = json.loads(out)
    assert found["seen"] == {"sockets": 8, "peers": 16}
    assert found["memory"] > 0 and found["answer"]["sockets"]["median"] > 0
    assert found["paint"]["complaints"] == []
    assert found["paint"]["bytes"] < 300_000
