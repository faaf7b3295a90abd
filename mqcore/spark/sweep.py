"""Removing staged files of the past: of attempts that failed, of drivers and tasks that were
killed. A file that cannot be removed fails no publication, whose messages are stored already."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from mqcore.errors import Error
from mqcore.spark.entries import (
    alone,
    forget,
    is_job,
    is_named,
    leftovers,
    load,
    others,
    read,
    tidy,
)
from mqcore.spark.staging import HOME, File, folder_of

_log = logging.getLogger("mqcore.spark")
ABANDONED = 86400.0     # seconds without a change after which staged files are given up


def discard(path: str, query: str, batch: int, files: list[File]) -> None:
    """Remove staged files of an attempt that will not be published. Those that the ledger promises
    to publish stay, and so does everything if the ledger's entry cannot be read."""
    try:
        entry = load(Path(path) / HOME, query)
    except (Error, OSError) as error:
        _log.warning("staged files of %s are left in place: %s", query, error)
        return
    promised = {File(*row).name for row in entry["files"]} if entry["batch"] == batch else set()
    for file in files:
        if file.name not in promised:
            shutil.rmtree((folder_of(path, query, batch) / file.name).parent, ignore_errors=True)


def sweep(path: str, query: str, batch: int, files: list[File]) -> None:
    """Remove leftovers of attempts at this batch and at earlier ones. Other files stay. Of a job
    with a jobId, only those of the run that has staged `files`: another one may be under way."""
    folder = folder_of(path, query, batch).parent
    try:
        for old in list(folder.iterdir()):
            if old.name.isdecimal() and int(old.name) <= batch and old.is_dir():
                if is_named(query):
                    _sweep_run(old, files)
                else:
                    shutil.rmtree(old, ignore_errors=True)
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            _log.warning("%s: %s", folder, error)


def _sweep_run(folder: Path, files: list[File]) -> None:
    """The tasks of these files, and all others of the same run."""
    tasks = {file.name.partition("/")[0] for file in files}
    runs = {task.split("-")[0] for task in tasks if task.count("-") == 2}
    for task in list(folder.iterdir()):
        if task.name in tasks or task.name.count("-") == 2 and task.name.split("-")[0] in runs:
            shutil.rmtree(task, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def sweep_abandoned(home: Path) -> None:
    """Remove what jobs and queries have staged whose drivers and tasks were killed: nothing has
    changed there for ABANDONED seconds, no task holds the lock of a file (see staging.py), and no
    entry of the ledger promises to publish it. And entries by which a second run of a failed job
    would be recognized, once they are as old, and what killed processes left beside entries."""
    try:
        for folder in list((home / "staging").iterdir()):
            if folder.is_dir() and not folder.is_symlink() and _abandoned(home, folder):
                shutil.rmtree(folder, ignore_errors=True)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("%s: %s", home / "staging", error)
    for file in others(home, ""):
        with suppress(Error, OSError):
            if is_job(file.stem) and time.time() - file.stat().st_mtime > ABANDONED:
                with alone(home, file.stem, 0):
                    if read(file)["state"] == "done":
                        forget(home, file.stem)
    for file in leftovers(home):
        with suppress(Error, OSError):
            if time.time() - file.stat().st_mtime > ABANDONED:
                with alone(home, file.stem, 0):
                    tidy(home, file.stem)


def _abandoned(home: Path, folder: Path) -> bool:
    try:
        return (time.time() - _touched(folder) > ABANDONED and not _in_use(folder)
                and load(home, folder.name)["state"] != "publishing")
    except (Error, OSError) as error:
        _log.warning("%s is left in place: %s", folder, error)
        return False


def _touched(folder: Path) -> float:
    """When something below the folder changed last."""
    newest = os.stat(folder).st_mtime
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):
                newest = max(newest, os.lstat(os.path.join(where, name)).st_mtime)
    return newest


def _in_use(folder: Path) -> bool:
    """Whether a task that is still running has staged files below the folder."""
    for file in folder.glob("*/*/0.arrow"):
        with suppress(FileNotFoundError), open(file, "rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
