"""perf/cluster_beside.py measures what is installed, and says what is not."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_each_has_a_row(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "perf" / "cluster_beside.py", "1", "100"], text=True,
        capture_output=True, timeout=200,
        env={**os.environ, "MQCORE_BROKERS": str(tmp_path), "PATH": "/nowhere"})
    assert done.returncode == 0, done.stderr
    assert re.search(r"^cluster +[\d,]+ requests/s, ", done.stdout, re.M), done.stdout
    for name in ("zenoh", "nats"):
        assert re.search(rf"^{name} +([\d,]+ requests/s, .*, ratio [\d.]+|skipped: .+)$",
                         done.stdout, re.M), done.stdout
    assert "skipped: there is no nats-server" in done.stdout or "nats-py is not" in done.stdout
