"""Runs the programs of doc_examples.py: reads a JSON list a line, writes the results in a line.

Each program gets a fork of this process, which has imported mqcore, so that a hundred programs cost
little more than one. The fork has a folder and a process group of its own, and at most LIMIT
seconds.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy  # noqa: F401

import mqcore as mq

ROOT = Path(__file__).resolve().parents[2]
LIMIT = {"python": 200, "console": 200, "spark": 280}      # only what hangs reaches them
AT_ONCE = 4
MARK = "\x00"


def fresh() -> dict:
    return {"__name__": "__main__", "__builtins__": __builtins__}


def tidy() -> None:
    """The folder stays, since Java's working folder cannot change; what a program left goes."""
    for path in Path().iterdir():
        if not path.name.startswith(("conf", "spark", "artifacts")):
            shutil.rmtree(path, ignore_errors=True)


def configure_spark() -> None:
    """As tests/spark does: plans that are not compiled, and no words of Java's."""
    import java

    folder = Path("conf").absolute()
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in java.PLAIN.items()))
    (folder / "log4j2.properties").write_text("rootLogger.level = off\n")
    os.environ["SPARK_CONF_DIR"] = str(folder)


def execute(kind: str, page: str, chunks: list) -> None:
    if kind == "console":
        [(_, code, _)] = chunks
        subprocess.run(["bash", "-e", "-u", "-c", code], check=True)
        print(MARK, end="")
        return
    space = fresh()
    for line, code, _ in chunks:
        if line == 0:  # the next program of many
            space = fresh()
            tidy()
        exec(compile("\n" * (line - 1) + code, page, "exec"), space)
        print(MARK, end="", flush=True)


def child(program: list, folder: Path) -> None:
    """Never returns."""
    kind, page, chunks = program[1], program[0], program[2]
    os.setsid()
    signal.alarm(LIMIT.get(kind, 200))
    os.chdir(folder / "work")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ.pop("MQCORE_SEED", None)     # of this run, not of the reader's
    for name, number in (("out", 1), ("err", 2)):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    warnings.simplefilter("error", mq.BlockingCallWarning)
    sys.argv = [page]
    sys.path.insert(0, str(ROOT / "docs"))
    if kind == "spark":
        configure_spark()
    try:
        execute(kind, page, chunks)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


def result(folder: Path, status: int) -> dict:
    out = (folder / "out").read_text() if (folder / "out").exists() else ""
    err = (folder / "err").read_text() if (folder / "err").exists() else ""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        end = "still runs, stopped" if number == signal.SIGALRM else f"signal {number}"
    else:
        end = f"exit status {os.WEXITSTATUS(status)}" if status else ""
    shutil.rmtree(folder)
    return {"status": end, "out": out.replace(MARK, ""), "err": err, "outs": out.split(MARK)[:-1]}


def run(programs: list) -> list:
    waiting = list(enumerate(programs))
    running: dict = {}
    results: list = [None] * len(programs)
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            index, program = waiting.pop(0)
            folder = Path(tempfile.mkdtemp(prefix="doc"))
            (folder / "work").mkdir()
            pid = os.fork()
            if not pid:
                child(program, folder)
            running[pid] = (index, folder)
        pid, status = os.wait()
        index, folder = running.pop(pid)
        try:
            os.killpg(pid, signal.SIGKILL)  # what it started and left
        except ProcessLookupError:
            pass
        results[index] = result(folder, status)
    return results


def prepare() -> None:
    """Import what most programs use, so that no fork has to."""
    import asyncio  # noqa: F401
    import threading  # noqa: F401

    for name in mq.__all__:
        getattr(mq, name)
    for found in (mq.transports, mq.filters, mq.patterns, mq.strategies, mq.resolvers):
        found()
    import mqcore.journal  # noqa: F401


def main() -> None:
    prepare()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        results = run(json.loads(line))
        answers.write(json.dumps(results) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
