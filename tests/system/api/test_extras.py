"""A feature whose package is not installed names the extra that brings it."""

import subprocess
import sys
import tomllib

import pytest
from sources import ROOT

FACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def without(package: str, program: str) -> subprocess.CompletedProcess[str]:
    """The program in an interpreter that has no such package."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.modules[{package!r}] = None\n{program}"],
        capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("package", ["click", "rich"])
def test_the_command_line_names_its_extra(package):
    done = without(package, "from mqcore.__main__ import main; main()")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (f"mq: this command needs the package {package}. Install it with: "
                           'pip install "mqcore[cli]"\n')


@pytest.mark.parametrize("call", ["bind", "connect"])
def test_websocket_names_its_extra(call):
    done = without("wsproto", f"""
import mqcore as mq
try:
    mq.Pull({call}="ws://127.0.0.1:9/")
except mq.NotSupported as error:
    print(error)
""")
    assert done.returncode == 0, done.stderr
    assert 'pip install "mqcore[ws]"' in done.stdout and "wsproto" in done.stdout


@pytest.mark.parametrize(("extra", "package", "program"), [
    ("journal", "msgspec", "import mqcore.journal.server.requests"),
    ("spark", "pyspark", "import mqcore.spark; mqcore.spark.register(None)"),
])
def test_other_features_name_theirs(extra, package, program):
    done = without(package, program)
    assert f"mqcore[{extra}]" in done.stderr, done.stderr


def test_named_extras_exist():
    extras = FACTS["project"]["optional-dependencies"]
    assert {"cli", "ws", "curve", "journal", "spark", "trio", "testing", "plugins"} <= set(extras)


def test_tools_of_the_developers_are_groups_and_no_extras():
    groups, extras = FACTS["dependency-groups"], FACTS["project"]["optional-dependencies"]
    assert {"test", "perf", "demo", "lint", "wheel"} <= set(groups)
    assert not set(groups) & set(extras)
