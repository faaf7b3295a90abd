"""What is run, recorded and cut: each operation of a journal.

A scenario has prepare(where, rng), before the recording, run(where, mark, rng), again(...), what
the next process does if run() was killed, and check(where, marks). Marks say what is about to be
done before it is done, and what was acknowledged once it was.
"""

import importlib.util

from crash_states.scenarios_compaction import COMPACTION
from crash_states.scenarios_copies import COPIES
from crash_states.scenarios_folders import FOLDERS
from crash_states.scenarios_queues import QUEUES
from crash_states.scenarios_writers import WRITERS

SPARK = ()
if importlib.util.find_spec("pyspark") and importlib.util.find_spec("pyarrow"):
    from crash_states.scenarios_spark import SPARK

SCENARIOS = {one.name: one() for one in (*WRITERS, *FOLDERS, *COPIES, *COMPACTION, *QUEUES, *SPARK)}
