"""Three `mq bridge` processes in a row, through two brokers, killed again and again."""

import random
import subprocess
import sys
import time

import pytest
from killing import LIMIT, arrived

from mqcore import journal

pytestmark = pytest.mark.brokers
COUNT, KILLS = 4000, 9


def test_nothing_is_lost_when_bridges_are_killed(broker, tmp_path, rng):
    nats, redis = broker("nats").url, broker("redis").url
    stream = f"{nats}?stream=S&subject=n&create=true"
    places = [f"journal:{tmp_path}/in?topic=t&group=g", f"{stream}&ack_wait=0.5",
              f"{redis}?stream=s", f"journal:{tmp_path}/out?topic=t"]
    with journal.open(tmp_path / "in", "a", topic="t") as log:
        for n in range(COUNT):
            log.append(b"%d" % n, key=b"k%d" % (n % 7), headers=[("n", b"%d" % n)])

    def start(index):
        with open(tmp_path / f"err{index}", "ab") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "mqcore", "bridge", "--every", "0", "--batch", "20",
                 "--window", "40", places[index], places[index + 1]],
                stdin=subprocess.DEVNULL, stderr=err)

    running = [start(index) for index in range(3)]
    try:
        kill_until_all_arrive(running, start, tmp_path, rng)
    finally:
        for process in running:
            process.kill()
            process.wait()


def kill_until_all_arrive(running, start, folder, rng: random.Random):
    killed, end = 0, time.monotonic() + LIMIT
    while len(found := arrived(folder)) < COUNT:
        assert time.monotonic() < end, f"{len(found)} of {COUNT} have arrived"
        for index, process in enumerate(running):
            assert process.poll() is None, (folder / f"err{index}").read_text()
        if killed < KILLS and len(found) >= killed * COUNT // (KILLS + 1):
            index = rng.randrange(3)
            running[index].kill()
            running[index].wait()
            running[index] = start(index)
            killed += 1
        time.sleep(0.05)
    assert killed == KILLS and found == set(range(COUNT))
