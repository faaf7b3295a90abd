"""Follows a page of the documentation as a newcomer does: saves each block in the file that the
page names, types each command, and compares what appears with what the page shows.

Everything happens in one shell and one folder. A ```python block with `title="FILE"` is saved as
FILE; below `<!-- continued -->` it is added to it. The lines of a ```console block that begin with
`$ ` are typed; the others, and a ```text title="Output" block below, are what they print on
standard output. A step that the page forgets makes a later one fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from doc_examples import COMMENT, FENCE, dedent, same

TITLE = re.compile(r'title="([^"]+)"')
NAME = re.compile(r"[\w.-]+")
END = "\x00"


class Step(NamedTuple):
    line: int
    file: str  # to save `text` in; "" if `text` is typed
    text: str
    added: bool
    output: str


def steps(page: str) -> Iterator[Step]:
    waiting: Step | None = None
    for match in FENCE.finditer(page):
        code = dedent(match["code"], match["indent"])
        line = page.count("\n", 0, match.start("code")) + 1
        title = TITLE.search(match["rest"])
        if match["kind"] == "text" and title and title[1] == "Output":
            assert waiting, f"line {line}: the output of nothing"
            waiting = waiting._replace(output=waiting.output + code)
            continue
        if waiting:
            yield waiting
            waiting = None
        if match["kind"] == "console":
            lines = code.splitlines(keepends=True)
            waiting = Step(line, "", "".join(one[2:] for one in lines if one.startswith("$ ")),
                           False, "".join(one for one in lines if not one.startswith("$ ")))
        elif title:
            yield Step(line, title[1], code, "continued" in COMMENT.findall(match["above"]), "")
    if waiting:
        yield waiting


class Shell:
    """A bash that is typed into. Context manager: what it started ends with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.errors = folder / ".errors"
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                ["bash", "--norc", "-m"], cwd=folder, env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        self.folder = folder

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.write("\nkill $(jobs -p) 2>/dev/null\n")
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def type(self, text: str) -> tuple[str, int]:
        """What `text` prints, and its status. Remembers the folder that it leads to."""
        # a program that reads standard input must not read what is typed next
        body = "".join(f"{line}\n" for line in text.splitlines())
        self.process.stdin.write(
            "{\n" + body + "} </dev/null\nprintf '\\0%s %s\\n' \"$?\" \"$PWD\"\n")
        self.process.stdin.flush()
        printed = ""
        for line in self.process.stdout:
            before, end, after = line.partition(END)
            printed += before
            if end:
                status, _, folder = after.rstrip("\n").partition(" ")
                self.folder = Path(folder)
                return printed, int(status)
        raise AssertionError(f"the shell has ended\n{printed}{self.errors.read_text()}")


def follow(page: Path, shell: Shell) -> list[str]:
    """What differs from the page. Stops at a command that fails."""
    for step in steps(page.read_text()):
        where = f"{page.name}:{step.line}"
        if step.file:
            with open(shell.folder / step.file, "a" if step.added else "w") as file:
                file.write(step.text)
            continue
        printed, status = shell.type(step.text)
        if status:
            return [f"{where}: status {status}\n{printed}{shell.errors.read_text()}"]
        if step.output and not same(step.output, printed):
            return [f"{where}: printed\n{printed}\nnot\n{step.output}"]
    return []


def lend(folder: Path, names: list[str]) -> Path:
    """A folder for PYTHONPATH with links to installed distributions and to all that they require:
    pip finds them and needs no network."""
    folder.mkdir()
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or Python: pip will say if it is wanted
        home = Path(str(found.locate_file("")))
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(home / top)
        waiting += [NAME.match(text)[0] for text in found.requires or () if "extra ==" not in text]
    return folder


def bare(folder: Path, lent: Path, wheels: Path) -> dict[str, str]:
    """The environment of somebody who has python3 of this version, and pip finds `wheels` only."""
    commands = folder / "commands"
    commands.mkdir()
    python = commands / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys._base_executable}" "$@"\n')
    python.chmod(0o755)
    kept = {name: os.environ[name] for name in ("LANG", "JAVA_HOME") if name in os.environ}
    return {**kept, "HOME": str(folder), "PATH": f"{commands}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(lent), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
            "PIP_QUIET": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
