"""The examples of the documentation: found in the Markdown pages, run one by one.

A block that is fenced as ```python is a program. It runs in a process, a folder and a namespace of
its own, ends by itself, and prints nothing on standard error. Comments right above the block:

    <!-- continued -->               it goes on where the block before it stopped; with a title,
                                     the two are one file, and the output is that of the file
    <!-- setup: ... -->              runs first, in the same namespace; readers do not see it
    <!-- needs: Spark -->            it runs with all others that need Spark, in one process
    <!-- needs: NATS -->             it runs in `make test-brokers`; the brokers are in BROKERS
    <!-- not run: waits for its client --> is shown only; the reasons are in NOT_RUN

A block that is fenced as ```text title="Output" and follows a program is what it prints. Between
them may stand a ```console block with the command `$ python FILE`. A line
`...` stands for any lines, and within a line for any text. In ```console blocks that stand below
`<!-- run -->`, the lines after `$ ` are one shell script, and the others are what it prints on
standard output.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOT_RUN = {"needs another machine",
           "waits for its client", "waits for its server"}      # test_tutorial runs these two
BROKERS = {"NATS": "nats", "RabbitMQ": "amqp", "MQTT": "mqtt", "Redis": "redis"}    # Program.kind
NEEDS = {f"needs: {name}": kind for name, kind in {**BROKERS, "Spark": "spark"}.items()}
RUNNER = Path(__file__).with_name("doc_runner.py")
FORK = "ignore:This process:DeprecationWarning"     # what Python from 3.12 on says beside threads
FENCE = re.compile(
    r"(?P<above>(?:^<!--(?:(?!-->).)*-->\n+)*)"
    r"^(?P<indent>[ ]*)(?P<ticks>```+)[ ]?(?P<kind>\w+)(?P<rest>[^\n]*)\n"
    r"(?P<code>.*?)^(?P=indent)(?P=ticks)[ ]*$", re.M | re.S)
STARTS = re.compile(r"\$ python \w+\.py\n")
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.S)


class Chunk(NamedTuple):
    line: int
    code: str
    output: str | None


class Program(NamedTuple):
    page: str
    kind: str  # "python", "console", "spark" or one of BROKERS
    chunks: list[Chunk]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.chunks[0].line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def dedent(code: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))


def programs(text: str, page: str) -> list[Program]:
    found: list[Program] = []
    shown = False  # the block before this one is a program that runs
    for match in FENCE.finditer(text):
        notes = COMMENT.findall(match["above"])
        code = dedent(match["code"], match["indent"])
        line = text.count("\n", 0, match.start("code")) + 1
        if match["kind"] == "text" and 'title="Output"' in match["rest"]:
            assert shown, f"{page}:{line}: the output of nothing"
            *_, last = found[-1].chunks
            found[-1].chunks[-1] = last._replace(output=code)
            continue
        if match["kind"] == "console" and "run" not in notes and STARTS.fullmatch(code):
            continue
        shown = runs(match["kind"], notes, f"{page}:{line}")
        if shown:
            kind = next((NEEDS[note] for note in notes if note in NEEDS), match["kind"])
            program = Program(page, kind, list(chunks(match["kind"], notes, code, line)))
            if "continued" in notes and "title=" in match["rest"]:
                join(found, program)
            else:
                add(found, program, "continued" in notes)
    return found


def add(found: list[Program], program: Program, continued: bool) -> None:
    if continued:
        assert found, f"{program.where}: nothing to continue"
        found[-1].chunks.extend(program.chunks)
    else:
        found.append(program)


def join(found: list[Program], program: Program) -> None:
    """It is added to the file of the block before it, and the output is that of the whole file."""
    assert found, f"{program.where}: nothing to continue"
    *_, last = found[-1].chunks
    [chunk] = program.chunks
    gap = "\n" * (chunk.line - last.line - last.code.count("\n"))     # lines keep their numbers
    found[-1].chunks[-1] = last._replace(code=last.code + gap + chunk.code)


def runs(kind: str, notes: list[str], where: str) -> bool:
    if kind == "console":
        return "run" in notes
    if kind != "python":
        return False
    for note in notes:
        if note.startswith("not run: "):
            assert note.removeprefix("not run: ") in NOT_RUN, f"{where}: {note}"
            return False
    return True


def chunks(kind: str, notes: list[str], code: str, line: int) -> Iterator[Chunk]:
    for note in notes:
        if note.startswith("setup:"):
            yield Chunk(line, note.removeprefix("setup:").strip("\n"), None)
    if kind == "python":
        yield Chunk(line, code, None)
    else:
        lines = code.splitlines()
        commands = [one.removeprefix("$ ") for one in lines if one.startswith("$ ")]
        expected = [one for one in lines if not one.startswith("$ ")]
        yield Chunk(line, "\n".join(commands), "\n".join(expected) if expected else None)


def together(found: list[Program]) -> Program:
    """One program of many, which begins each of them anew: line 0."""
    parts = [chunk for program in found for chunk in (Chunk(0, "", None), *program.chunks)]
    return Program(", ".join(dict.fromkeys(program.page for program in found)), "spark", parts)


def same(expected: str, found: str) -> bool:
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "..." else
        ".*".join(map(re.escape, line.split("..."))) + "\n"
        for line in expected.strip().splitlines())
    return re.fullmatch(pattern, found.strip() + "\n") is not None


class Runner:
    """A process that runs programs, each in a fork of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", FORK, RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)

    def run(self, found: list[Program]) -> list[str]:
        """What went wrong, a text a program."""
        self.process.stdin.write(json.dumps(found) + "\n")
        self.process.stdin.flush()
        answers = json.loads(self.process.stdout.readline())
        wrong = []
        for program, answer in zip(found, answers, strict=True):
            wrong += complaints(program, answer)
        return wrong

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def complaints(program: Program, answer: dict[str, Any]) -> list[str]:
    if answer["status"] or answer["err"] and program.kind not in ("console", "spark"):
        return [f"{program.where}: {answer['status'] or 'wrote to standard error'}\n"
                f"{answer['out']}{answer['err']}"]
    return [f"{program.page}:{chunk.line}: printed\n{out}\nnot\n{chunk.output}"
            for chunk, out in zip(program.chunks, answer["outs"], strict=True)
            if chunk.output is not None and not same(chunk.output, out)]
