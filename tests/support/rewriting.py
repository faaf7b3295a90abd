"""Rewriting the assertions of all test files takes three times as long as the rest of collecting.
All workers collect in the same order, so in a tree that is new each would rewrite each file. Here
each begins with a share of its own, and finds most of the others done when it collects.
"""

import contextlib
import sys
from pathlib import Path

from _pytest.assertion import rewrite


def share(config) -> None:
    """Rewrite this worker's share of the files in the folders that are asked for."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    files = sorted({file for folder in map(Path, config.args) if folder.is_dir()
                    for file in folder.rglob("test_*.py")})
    number = int(worker["workerid"].removeprefix("gw"))
    for file in files[number::worker["workercount"]]:
        cache = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
        if not cache.exists():
            with contextlib.suppress(OSError, SyntaxError, ValueError):    # collecting reports it
                cache.parent.mkdir(exist_ok=True)
                source, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, cache)
