"""The command as a whole: help for newcomers, `mq info`, and that nobody else pays for it."""

import json
import subprocess
import sys

import pytest
from programs import mq, run

import mqcore

COMMANDS = [
    ("plugin",),
    ("plugin", "new"),
    (),
    ("cat",),
    ("device",),
    ("perf",),
    ("perf", "lat"),
    ("perf", "thr"),
    ("info",),
    ("doctor",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_an_example(command):
    status, out, err = run(*mq(*command, "--help"))
    assert (status, err) == (0, "")
    assert (
        f"  mq {' '.join(command)}".rstrip() in out.decode().split("Options:")[0].split("\n", 1)[1]
    )


def test_info_lists_what_is_installed():
    status, out, _ = run(*mq("info"))
    text = out.decode()
    assert status == 0 and f"mqcore {mqcore.__version__}" in text
    for plugin in [*mqcore.transports(), *mqcore.patterns()]:
        assert any(
            line.split()[:3] == [plugin.kind, plugin.name, "mqcore"] for line in text.splitlines()
        )


def test_info_for_programs():
    status, out, _ = run(*mq("info", "--json"))
    found = json.loads(out)
    assert status == 0 and found["mqcore"] == mqcore.__version__
    assert {"tcp", "push"} <= {plugin["name"] for plugin in found["plugins"]}


def test_a_refused_plugin_is_shown(tmp_path):
    """A distribution with a pattern that does not import, put on the path."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mqcore.protocols]\nbroken = no_such_module:pattern\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); from mqcore.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "info"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1
    assert (
        "REFUSED" in done.stdout and "broken 1.0" in done.stdout and "no_such_module" in done.stdout
    )


def test_version():
    assert run(*mq("--version"))[1].decode().split()[-1] == mqcore.__version__


def test_importing_mqcore_imports_no_command_line():
    code = "import sys, mqcore; print([m for m in ('click', 'rich') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=200
        ).stdout
        == "[]\n"
    )
