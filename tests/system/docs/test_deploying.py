"""What the page about deployment has people copy: systemd's units, and the Dockerfile's steps."""

import configparser
import json
import re
import shutil
import subprocess
import tomllib

import pytest
from doc_examples import DOCS, ROOT
from programs import mq, run, starter

PAGE = (DOCS / "guides" / "deploying.md").read_text()
FILES = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
DOCKERFILE = [line.split(maxsplit=1) for line in FILES["Dockerfile"].splitlines()]


def unit(name):
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(FILES[f"/etc/systemd/system/{name}"])
    return parser


def test_the_units_belong_together():
    """A socket unit starts the service of its own name."""
    assert unit("adder.socket")["Socket"]["ListenStream"] == "5555"
    assert unit("adder.socket")["Install"]["WantedBy"] == "sockets.target"
    assert unit("adder.service")["Service"]["ExecStart"].split()[0].startswith("/")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path):
    for name in ("adder.socket", "adder.service"):
        text = FILES[f"/etc/systemd/system/{name}"]
        (tmp_path / name).write_text(re.sub(r"(?m)^ExecStart=.*", "ExecStart=/bin/true", text))
    done = subprocess.run(["systemd-analyze", "verify", *map(str, tmp_path.iterdir())],
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert str(tmp_path) not in done.stderr


@pytest.fixture
def start():
    with starter() as function:
        yield function


def said(word):
    return [rest for step, rest in DOCKERFILE if step == word]


def test_the_image_installs_extras_that_exist():
    [step] = said("RUN")
    [extras] = re.findall(r'"mqcore\[([\w,]+)\]"', step)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert said("USER") == ["nobody"]


def test_the_image_s_command_serves_and_ends_as_a_container_does(start):
    """The command at other ports: a message passes, and SIGTERM ends it with its status."""
    command = json.loads(said("CMD")[0])
    ports = [re.search(r":(\d+)$", word)[1] for word in command if word.startswith("tcp://")]
    assert said("EXPOSE") == [" ".join(ports)]
    assert command[0] == "mq"
    words = [re.sub(r"tcp://\*:\d+", "tcp://127.0.0.1:0", word) for word in command[1:]]
    device = start(*mq(*words))
    front, back = (device.line().split()[1] for _ in range(2))
    worker = start(*mq("cat", "rep", back))
    status, out, _ = run(*mq("cat", "req", front, "-d", "hello"))
    assert (status, out) == (0, b"hello\n")
    worker.kill()
    assert device.end()[0] == 143
