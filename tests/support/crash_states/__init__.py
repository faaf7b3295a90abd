"""Crash states: what a power cut may leave of any operation on a folder, and whether that is sound.

    record.c        preloaded into a child: what it does to files and folders, into a log
    child.py        the child: runs scenarios, whole, and killed in front of each operation
    recording.py    the log as operations and marks
    states.py       what a disk may hold after a cut between two of them
    facts.py        what the marks say was promised before the cut, and the checks of a journal
    scenarios*.py   what is run, and what must hold afterwards
    running.py      all states of a recording, each checked once

The model is that of ALICE (Pillai et al., "All file systems are not created equal", OSDI 2014). An
fsync of a file makes its bytes and its size durable, and not its name. An fsync of a folder makes
the names in it durable. Of everything else, any part may be on the disk, in any order: each page of
a file in each of its versions since the last fsync, its size, and each change of a name. A rename
is one change.
"""
