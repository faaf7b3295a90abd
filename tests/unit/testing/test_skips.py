"""With CI=true a skip whose reason is not in the table fails, in a test and of a whole file."""

import subprocess

import pytest
from nested import PYTEST
from skips import MAY_SKIP, forbidden
from sources import ROOT

FILES = {
    "test_one.py": "import pytest\n\n"
                   "def test_unknown():\n    pytest.skip('no time')\n\n"
                   "def test_known():\n    pytest.skip('no IPv6 on this machine')\n\n"
                   "@pytest.mark.xfail\ndef test_expected():\n    assert False\n",
    "test_two.py": "import pytest\npytest.importorskip('a_module_that_nobody_has')\n",
}


@pytest.mark.parametrize(("ci", "outcome"), [
    ("true", {"failed": 1, "skipped": 1, "error": 1, "xfailed": 1}),
    ("", {"skipped": 3, "xfailed": 1})])
def test_what_becomes_of_skips(tmp_path, monkeypatch, ci, outcome):
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests' / 'support')!r})\n"
        + (ROOT / "tests" / "conftest.py").read_text())
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("CI", ci)
    done = subprocess.run(
        [*PYTEST, "-q", "--rootdir", tmp_path, "--continue-on-collection-errors", tmp_path],
        cwd=tmp_path, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1]
    for what, count in outcome.items():
        assert f"{count} {what}" in last, done.stdout


def test_every_row_of_the_table_allows_something_and_not_everything():
    assert forbidden("no chromium here (Debian: apt-get install chromium)")
    assert forbidden("could not import 'pynng': No module named 'pynng'")
    assert not forbidden("root may bind any port")
    assert all(MAY_SKIP.values())
