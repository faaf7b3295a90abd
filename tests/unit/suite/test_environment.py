"""A small part of the suite under environments in which it may be started: all of it passes."""

import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from sources import ROOT

PART = ("tests/system/api/test_life.py", "tests/system/api/test_sockets.py",
        "tests/system/cli/test_device.py", "tests/system/lifecycle/test_exit.py",
        "tests/unit/resolvers", "tests/unit/transports")
OFF = 'ip link set lo up && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"'
WITHOUT_IPV6 = ["unshare", "--net", "sh", "-c", OFF, "sh"]
NO_NAMESPACES = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--"]
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def open_descriptors():
    for _ in range(100):
        os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)


def few_descriptors():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))


WAYS = {        # name: variables, what the child does first, the words in front
    "mask": ({}, lambda: os.umask(0o077), []),
    "nohup": ({}, ignore_signals, []),
    "descriptors": ({}, open_descriptors, []),
    "few-descriptors": ({}, few_descriptors, []),
    "home": ({"HOME": "/proc/nobody", "XDG_CACHE_HOME": "/proc/nobody"}, None, []),
    "words": ({"LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.ISO-8859-1", "TZ": "Asia/Kolkata"},
              None, []),
    "python": ({"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONPATH": "/proc",
                "PYTHONDEVMODE": "1", "PYTHONUNBUFFERED": "1"}, None, []),
    "no-ipv6": ({}, None, WITHOUT_IPV6),
    "no-namespaces": ({}, None, NO_NAMESPACES),
}


def run_part(words, variables, first):
    """In two workers: each that starts takes seconds, and all of them inherit the environment."""
    done = subprocess.run(
        [*words, sys.executable, ROOT / "tools" / "suite.py", "-n", "2", "-p", "no:cacheprovider",
         *PART],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, **variables}, preexec_fn=first, close_fds=False)
    assert done.returncode == 0, done.stdout[-10_000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", [
    pytest.param(name, marks=root) if words else name for name, (_, _, words) in WAYS.items()])
def test_part_of_the_suite(way):
    variables, first, words = WAYS[way]
    if words and not shutil.which(words[0]):
        pytest.skip(f"no {words[0]}")
    run_part(words, variables, first)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_part_of_the_suite_in_a_long_folder(tmp_path):
    """TMPDIR of more than 90 characters."""
    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    run_part([], {"TMPDIR": str(folder)}, None)
