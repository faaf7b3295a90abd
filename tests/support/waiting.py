"""`until` of mqcore.testing, with a limit that only what hangs reaches on a busy machine."""

import mqcore.testing


def until(true, limit=60.0, pause=0.002):
    return mqcore.testing.until(true, limit, pause)
