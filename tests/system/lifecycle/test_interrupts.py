"""Ctrl-C at each place where CPython looks for signals: the next turn works, no thread is left."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from interrupts import SCENES

PROGRAM = Path(__file__).parents[2] / "support" / "interrupts.py"
STEP = 1 if os.environ.get("MQCORE_ROUNDS") else 53     # every place, or every so many


@pytest.mark.parametrize("scene", SCENES)
def test_a_turn_after_an_interrupt_at_each_place(scene, seed):
    first = random.Random(seed).randrange(STEP)
    done = subprocess.run([sys.executable, PROGRAM, scene, str(first), str(STEP)],
                          capture_output=True, text=True, timeout=3000)
    last = done.stderr[-3000:]
    assert done.returncode == 0, last
    found = re.fullmatch(r"(\d+) places; left:(.*)\n", done.stdout)
    assert found and int(found[1]) > 500 // STEP, (done.stdout, last)
    assert found[2] == "", (done.stdout, last)
