"""Network namespaces of our own: another machine, as far as TCP can tell."""

import contextlib
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

IP = shutil.which("ip")


def sh(*words):
    subprocess.run([IP, *words], check=True, capture_output=True)


@contextlib.contextmanager
def linked():
    """A namespace with a link to us: (its name, our device, our address, its address)."""
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and ip(8)")
    name = f"mq{os.getpid()}"
    ours, theirs = f"{name}a", f"{name}b"
    try:
        sh("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        sh("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        sh("address", "add", "169.254.77.1/30", "dev", ours)
        sh("link", "set", ours, "up")
        sh("-n", name, "address", "add", "169.254.77.2/30", "dev", theirs)
        sh("-n", name, "link", "set", theirs, "up")
        sh("-n", name, "link", "set", "lo", "up")
        yield name, ours, "169.254.77.1", "169.254.77.2"
    finally:
        sh("netns", "delete", name)
        subprocess.run([IP, "link", "delete", ours], check=False, capture_output=True)


@contextlib.contextmanager
def inside(name, program):
    """A program of ours in the namespace, which says when it is ready."""
    child = subprocess.Popen(
        [IP, "netns", "exec", name, sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stdin.close()
