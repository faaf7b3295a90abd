"""Sets of polled sockets that the garbage collector takes, before or with the sockets in them.

It empties the containers of what it takes in an order of its own, so the program that does it runs
with an allocator that fills what was freed, in a process of its own.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import gc, itertools, sys, warnings
import mqcore as mq
from mqcore.binding.poll_set import PollSet
from mqcore.testing import until

weak, together = sys.argv[1] == "weak", sys.argv[2] == "together"
warnings.simplefilter("ignore", ResourceWarning)        # sockets that nobody closed


class Kept(mq.Pull):
    pass


def garbage(early, rung):
    '''A set in a cycle that is older or younger than its containers.'''
    some, cycle = PollSet(mq.Socket), []
    if early:
        cycle.append(some)
    urls = [f"inproc://{next(names)}" for _ in range(5)]
    socks = [Kept(bind=url) for url in urls]
    for i, sock in enumerate(socks):
        some.add(i, sock, sock, 1, weak)
    if not rung:
        assert some.poll(0) == []
    if not early:
        cycle = [some]
    cycle.append(cycle)
    if together:
        for sock in socks:
            sock.cycle = [sock, some]
    return urls, [] if together else socks


names = itertools.count()
gc.disable()
with mq.Push() as push:
    for early, rung in itertools.product((True, False), repeat=2):
        urls, socks = garbage(early, rung)
        if not together:
            push.connect(urls[2])
            push.send(b"before", timeout=10)
        gc.collect()
        junk = [bytes(size) for size in range(1000)]
        if not together:
            push.send(b"after", timeout=10)
            assert [socks[2].recv(timeout=10) for _ in range(2)] == [b"before", b"after"]
            push.disconnect(urls[2])
            while socks:
                socks.pop().close()
until(lambda: not any(isinstance(one, Kept) for one in gc.get_objects()) or gc.collect() and False)
print("done")
"""


@pytest.mark.parametrize("together", ["together", "apart"])
@pytest.mark.parametrize("weak", ["weak", "strong"])
def test_a_set_that_is_garbage(weak, together):
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROGRAM, weak, together],
                          env=os.environ | {"PYTHONMALLOC": "debug"}, capture_output=True,
                          text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
