"""The distributions under examples/plugins, installed as documented and used by programs that have
no other mqcore: each passes its own tests, and is told by name, version and gaps."""

import json

import pytest
from sources import ROOT

EXAMPLES = sorted(path.parent for path in (ROOT / "examples" / "plugins").glob("*/pyproject.toml"))


@pytest.mark.parametrize("project", EXAMPLES, ids=lambda path: path.name)
def test_it_passes_its_own_tests(installed, project):
    done = installed.suite(project, installed.add(project))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("project", EXAMPLES, ids=lambda path: path.name)
def test_it_is_told_by_name(installed, project):
    done = installed.mq("info", "--json", plugins=installed.add(project))
    mine = [row for row in json.loads(done.stdout)["plugins"]
            if row["distribution"] == project.name]
    assert done.returncode == 0 and mine
    for row in mine:
        assert (row["version"], row["refused"]) == ("1.0", "") and row["doc"]
        assert row["target"].startswith(project.name.replace("-", "_"))


def test_the_documented_command_is_in_every_readme():
    assert EXAMPLES
    for project in EXAMPLES:
        text = (project / "README.md").read_text()
        assert f"pip install --no-build-isolation ./{project.name}" in text
