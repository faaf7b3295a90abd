"""The tests' own modules are found, however pytest imports test files. network.py and peer.py are
those of mqcore-pgm's tests."""

import os
import random
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "mqcore-pgm" / "tests")]


@pytest.fixture
def chance():
    seed = int(os.environ.get("MQCORE_SEED") or random.SystemRandom().getrandbits(31))
    print(f"MQCORE_SEED={seed}")
    return random.Random(seed)
