"""`mq plugin new` writes distributions that install and pass their suite as they are."""

import tomllib
from string import Template

import pytest
from sources import ROOT

from mqcore.cli.plugin import KINDS

WALKED = {"stream", "filter", "engine"}  # transports/README.md makes, installs and tests these
NAMES = {key: f"fresh{number}" for number, key in enumerate(KINDS)}


@pytest.fixture(scope="session")
def written(installed, tmp_path_factory):
    """written(key): the folder of a new plug-in, made by the command of the installed mqcore."""
    folder = tmp_path_factory.mktemp("new")

    def written(key):
        kind, _, cython = key.partition("-")
        project = folder / NAMES[key]
        if not project.exists():
            done = installed.mq("plugin", "new", NAMES[key], "--kind", kind,
                                *["--cython"] * bool(cython), cwd=folder)
            assert done.returncode == 0, done.stderr
            assert [folder / line for line in done.stdout.split()] \
                == [path for path in map(folder.__truediv__, done.stdout.split()) if path.is_file()]
        return project

    return written


@pytest.mark.parametrize("key", sorted(KINDS.keys() - WALKED))
def test_it_installs_and_passes_its_suite_unchanged(installed, written, key):
    project = written(key)
    plugins = installed.add(project)
    done = installed.suite(project, plugins)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("key", KINDS)
def test_what_it_writes_is_whole(written, key):
    project = written(key)
    facts = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert facts["name"] == f"mqcore-{NAMES[key]}"
    assert list(facts["entry-points"]) == [KINDS[key].group]
    assert "pip install --no-build-isolation" in (project / "README.md").read_text()
    for path in project.rglob("*.py*"):
        text = path.read_text()
        assert "$" not in text and max(map(len, text.split("\n"))) <= 100, path


def test_the_engine_is_the_example_of_one(examples):
    """What the example has been through, the skeleton has been through."""
    facts = {"name": "seqpacket", "Class": "Seqpacket", "module": "mqcore_seqpacket",
             "extension": "mqcore_seqpacket_engine", "distribution": "mqcore-seqpacket"}
    template = ROOT / "mqcore" / "cli" / "templates" / "engine"
    for source, copy in (("module.py.in", "mqcore_seqpacket.py"),
                         ("extension.pyx.in", "mqcore_seqpacket_engine.pyx"),
                         ("tests/test_module.py.in", "tests/test_seqpacket.py")):
        text = Template((template / source).read_text()).substitute(facts)
        assert text == (examples / "mqcore-seqpacket" / copy).read_text()


REFUSED = {
    "a name that is no scheme": (["Carrier-1", "--kind", "stream"], "lower-case letters"),
    "a scheme that is taken": (["tcp", "--kind", "stream"], "taken by mqcore"),
    "a folder that is there": (["there", "--kind", "stream"], "already exists"),
    "a stream in Cython": (["carrier", "--kind", "stream", "--cython"], "not support --cython"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses(installed, tmp_path, case):
    arguments, message = REFUSED[case]
    (tmp_path / "there").mkdir()
    done = installed.mq("plugin", "new", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
