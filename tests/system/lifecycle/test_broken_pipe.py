"""Peers that leave while a program sends to them, in a program that has SIGPIPE at its default, as
many command-line tools have: it would end the process."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import signal, sys
sys.path.insert(0, {support!r})
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.alarm(60)
import mqcore as mq
from rawzmtp import RawPeer

with mq.Context() as ctx, ctx.socket("pub", heartbeat=None) as pub:
    url = pub.bind({url!r}).url
    for _ in range(200):
        peer = RawPeer.connect(url)
        peer.shake("SUB")
        peer.say(bytes((0, 1)) + bytes((1,)))       # subscribes to everything
        pub.send(b"hello")
        while not pub._attached():
            pass
        peer.reset()
        for _ in range(20):
            pub.send(b"x" * 100)
print("alive")
"""


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_peers_that_leave_do_not_kill_the_process(scheme, tmp_path):
    url = "tcp://127.0.0.1:0" if scheme == "tcp" else f"ipc://{tmp_path}/s"
    support = str(Path(__file__).parents[2] / "support")
    child = subprocess.run([sys.executable, "-c", PROGRAM.format(support=support, url=url)],
                           capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, "alive\n"), child.stderr
