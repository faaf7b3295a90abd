"""What the engine does when the system refuses it something: memory for a note, a descriptor in the
poll set. Each test is a child of its own, whose C library fails on request."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from preload import shared_library

SUPPORT = Path(__file__).parents[2] / "support"
HEAD = """
import ctypes, signal, sys
sys.path.insert(0, {support!r})
signal.alarm(30)
scarce = ctypes.CDLL({library!r})
import mqcore as mq
from rawzmtp import RawPeer
from mqcore.testing import until
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return shared_library(SUPPORT / "scarce.c", tmp_path_factory.mktemp("scarce") / "scarce.so")


def run(library, program):
    text = HEAD.format(support=str(SUPPORT), library=library) + textwrap.dedent(program)
    child = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                           env={**os.environ, "LD_PRELOAD": library})
    assert child.returncode == 0, (child.returncode, child.stdout, child.stderr)
    return child.stdout


def test_a_socket_closes_whose_peer_left_while_there_was_no_memory(library):
    assert run(library, """
        with mq.Context() as ctx:
            pull = ctx.socket("pull")
            peer = RawPeer.connect(pull.bind("tcp://127.0.0.1:0").url)
            peer.shake("PUSH")
            pull.wait_peers(1, 10)
            scarce.scarce_memory(1)
            peer.reset()
            until(lambda: pull._attached() == 0)
            scarce.scarce_memory(0)
            until(lambda: not pull.peers())
            pull.close()
        print("closed")
    """) == "closed\n"


def test_a_connection_that_cannot_be_watched_fails_with_the_reason(library):
    assert run(library, """
        with mq.Context() as ctx, ctx.socket("pull") as pull:
            url = pull.bind("tcp://127.0.0.1:0").url
            with pull.events() as events:
                scarce.scarce_watches(1)
                with RawPeer.connect(url) as peer:
                    assert peer.ended()
                scarce.scarce_watches(0)
                for event in events:
                    if "cannot be watched: No space left on device" in str(event):
                        break
            assert pull.stats().failed_handshakes == 1
            with RawPeer.connect(url) as peer:
                peer.shake("PUSH")
                peer.say(bytes((0, 1)) + b"x")
                print(pull.recv(timeout=10))
    """) == "b'x'\n"


def test_a_device_that_cannot_watch_its_sockets_says_so(library):
    assert "No space left on device" in run(library, """
        import threading
        from mqcore.devices.mover import DeviceCore
        with mq.Context() as ctx, ctx.socket("pull") as front, ctx.socket("push") as back:
            core = DeviceCore(front, back, None)
            scarce.scarce_watches(2)
            try:
                core.run()
            except OSError as error:
                print(error)
    """)


@pytest.mark.parametrize("url", ["ipc://*", "shm://*", "ws://127.0.0.1:0"])
def test_a_transport_that_descriptors_were_short_for_works_later(library, url):
    """Its import fails; that is no fault of the plug-in, and is not remembered as one."""
    assert run(library, f"""
        import os, resource
        with mq.Context() as ctx:
            pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
            most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,
                                                        most[1]))
            try:
                pull.bind({url!r})
            except (mq.PluginError, OSError) as error:
                print("Too many open files" in str(error))
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
            pull.bind({url!r})
        print("bound")
    """) == "True\nbound\n"
