"""The patterns of examples/plugins: distributions of their own, installed as documented, tested by
their own tests in an interpreter that has them and the mqcore of this tree."""

import os
import re
import subprocess
import sys

import pytest
from sources import ROOT, blank

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]
EXAMPLES = ROOT / "examples" / "plugins"
PATTERNS = ("mqcore-sticky", "mqcore-lanes")
OUTSIDE = re.compile(r"^\s*(?:from|import|cimport)\s+(mqcore[\w.]*)", re.M)
DOORS = ("mqcore.spi.", "mqcore.testing", "mqcore.protocols.routing.")


def run(*command, **env):
    answer = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, env={**os.environ, **env})
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-4000:]
    return answer.stdout


@pytest.fixture(params=PATTERNS)
def installed(request, tmp_path):
    """(distribution, a folder to put on the path)."""
    # declarations lie where mqcore is installed; of a tree that was built in place, here
    layout = {"PYTHONPATH": str(ROOT / "build" / "layout")}
    source = tmp_path / "source"
    source.symlink_to(EXAMPLES / request.param)
    target = tmp_path / "site"
    copy = tmp_path / "copy"
    run("-c", f"import shutil; shutil.copytree({str(source)!r}, {str(copy)!r})")
    run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
        "--target", target, copy, **layout)
    return request.param, target


def test_an_example_installs_and_passes_its_own_tests(installed):
    name, target = installed
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", target,
        EXAMPLES / name / "tests", PYTHONPATH=str(target), PYTHONDONTWRITEBYTECODE="1")
    pattern = name.removeprefix("mqcore-")
    told = run("-c", "import mqcore as mq; print([i for i in mq.patterns() "
               f"if i.name == {pattern!r}])", PYTHONPATH=str(target))
    assert f"distribution='{name}'" in told and "refused=''" in told


@pytest.mark.parametrize("name", PATTERNS)
def test_an_example_uses_the_doors_only(name):
    found = []
    for path in (EXAMPLES / name).rglob("*"):
        if path.suffix in {".py", ".pyx", ".pxd"}:
            found += OUTSIDE.findall(blank(path.read_text()))
    assert found
    assert [m for m in found if m != "mqcore" and not m.startswith(DOORS)] == []
