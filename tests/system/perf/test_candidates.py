"""How candidates are spelled, and that a build is really the one that is measured."""

import argparse
import sys
from pathlib import Path

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"
WHERE = """
import sys
sys.path.insert(0, sys.argv[1])
import candidates
candidates.load(sys.argv[2])
import mqcore.transports, mqcore.inside
print(mqcore.__file__, mqcore.inside.__file__, mqcore.transports.__file__, sep="\\n")
"""


@pytest.fixture
def candidates(monkeypatch):
    monkeypatch.syspath_prepend(PERF)
    import candidates

    return candidates


@pytest.fixture
def checkout(tmp_path):
    """What looks like another checkout of ours."""
    for name in ("mqcore/__init__.py", "mqcore/inside.py", "transports/__init__.py"):
        (tmp_path / "before" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "before" / name).touch()
    return tmp_path / "before"


def test_a_folder_is_imported_and_not_what_is_installed(checkout, tmp_path):
    program = tmp_path / "where.py"
    program.write_text(WHERE)
    status, out, err = run(program, PERF, f"mqcore@{checkout}")
    assert status == 0, err
    assert [Path(line).parent.parent for line in out.decode().split()] == [
        checkout, checkout, checkout,
    ]  # fmt: skip


def test_spelling(candidates, checkout):
    name = candidates.known(f"mqcore@{checkout}")
    assert candidates.label(name) == "mqcore@before"
    assert candidates.interpreter(name) == sys.executable
    python = candidates.known(f"pyzmq@{sys.executable}")
    assert candidates.interpreter(python) == sys.executable
    assert candidates.label("pyzmq@/envs/old/bin/python3.12") == "pyzmq@old"
    assert candidates.label("pyzmq") == "pyzmq"


@pytest.mark.parametrize("name", ["nosuch", "mqcore@/nosuch/place", "mqcore@{tmp}"])
def test_what_is_not_there_is_refused(candidates, tmp_path, name):
    with pytest.raises(argparse.ArgumentTypeError, match="no "):
        candidates.known(name.format(tmp=tmp_path))
