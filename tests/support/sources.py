"""Reading our own sources for the tests of the house: which files, their modules, Cython as text.

Nothing off the shelf reads cimports, so Cython is read here as logical lines: comments and strings
blanked (positions kept), a statement in parentheses or with a backslash joined to one line.
"""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# folder -> the package that it is when installed
FOLDERS = {"mqcore": "mqcore", "transports": "mqcore.transports", "protocols": "mqcore.protocols",
           "tests/native": "mqcore.testing.native"}
TESTS_ONLY = "tests/native"     # in no wheel
CODE = {".py", ".pyi", ".pyx", ".pxd"}
CYTHON = {".pyx", ".pxd"}


def tracked(root: Path = ROOT) -> list[Path]:
    """What is in the repository or about to be; without git, what lies in our folders."""
    if shutil.which("git"):
        answer = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=root, capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout:
            paths = [root / name for name in answer.stdout.split("\0") if name]
            return sorted(path for path in paths if path.is_file() and not path.is_symlink())
    folders = (*FOLDERS, "tests", "tools", "perf", "examples")
    paths = {*root.glob("*"), *(path for folder in folders for path in (root / folder).rglob("*"))}
    return sorted(path for path in paths if path.is_file()
                  and path.suffix not in {".so", ".pyc"} and "__pycache__" not in path.parts)


def package_files(root: Path = ROOT, suffixes: set[str] = CODE) -> list[Path]:
    """Sources of what an editable install has."""
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")
                  if path.suffix in suffixes and path.is_file())


def test_only(path: Path, root: Path = ROOT) -> bool:
    """Whether only tests use it, and no wheel holds it."""
    return path.is_relative_to(root / TESTS_ONLY)


def shipped(suffixes: set[str] = CODE) -> list[Path]:
    """Sources of what a wheel holds."""
    return [path for path in package_files(suffixes=suffixes) if not test_only(path)]


def module_of(path: Path, root: Path = ROOT) -> str:
    """mqcore/link/pipe.pyx -> mqcore.link.pipe; __init__ stays, for relative imports."""
    place = path.relative_to(root).with_suffix("")
    [folder] = [folder for folder in FOLDERS if place.is_relative_to(folder)]
    return ".".join((FOLDERS[folder], *place.relative_to(folder).parts))


STRING = re.compile(r'''("""|\'\'\')(?:\\.|.)*?\1'''                        # triple
                    r'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*\''''      # plain
                    r'''|#[^\n]*''', re.S)


def blank(text: str) -> str:
    """The text with the inside of strings and comments replaced by spaces."""
    def spaces(match: re.Match) -> str:
        return re.sub(r"[^\n]", " ", match.group())
    return STRING.sub(spaces, text)


class Line(NamedTuple):
    number: int         # of its first physical line, from 1
    last: int           # of its last one
    indent: int
    text: str           # joined, blanked, single spaces


@cache
def logical_lines(text: str) -> tuple[Line, ...]:
    """Kept, since many rules read the same files."""
    lines: list[Line] = []
    parts: list[str] = []
    depth = first = 0
    for number, raw in enumerate(blank(text).split("\n"), 1):
        if not parts:
            if not raw.strip():
                continue
            first = number
        depth += sum(raw.count(c) for c in "([{") - sum(raw.count(c) for c in ")]}")
        continues = raw.rstrip().endswith("\\")
        parts.append(raw.rstrip().rstrip("\\"))
        if depth <= 0 and not continues:
            indent = len(parts[0]) - len(parts[0].lstrip())
            lines.append(Line(first, number, indent, " ".join(" ".join(parts).split())))
            parts, depth = [], 0
    return tuple(lines)


class Function(NamedTuple):
    name: str
    line: Line
    tail: str           # what follows the closing parenthesis
    in_class: bool
    has_body: bool
    result: str         # what stands before the name: "cdef inline int"


FUNCTION = re.compile(r"^(?P<result>(?:cdef|cpdef)\b[^=(]*?)\b(?P<name>\w+)\s*\((?!\s*\*)")
FOREIGN_OR_STRUCT = re.compile(
    r"^cdef\s+extern\b|^(cdef|ctypedef)\s+(public\s+)?(packed\s+)?(struct|union|enum)\b.*:$")
NOT_FUNCTION = re.compile(r"^cdef\s+(?:extern|class|struct|enum|union|cppclass|packed|fused)\b")


def cython_functions(text: str) -> list[Function]:
    """The cdef and cpdef functions, defined or declared; those in `cdef extern` are not ours."""
    found = []
    skip: int | None = None                     # inside a block deeper than this indentation
    classes: list[int] = []
    for line in logical_lines(text):
        if skip is not None:
            if line.indent > skip:
                continue
            skip = None
        classes = [indent for indent in classes if indent < line.indent]
        if FOREIGN_OR_STRUCT.match(line.text):
            skip = line.indent
            continue
        if re.match(r"^(cdef\s+)?class\b", line.text):
            classes.append(line.indent)
            continue
        if NOT_FUNCTION.match(line.text):
            continue
        match = FUNCTION.match(line.text)
        if match:
            close = _closing(line.text, match.end() - 1)
            tail = line.text[close + 1:].strip()
            found.append(Function(
                match["name"], line, tail.removesuffix(":").strip(), bool(classes),
                tail.endswith(":"), match["result"].strip()))
    return found


def _closing(text: str, start: int) -> int:
    depth = 0
    for i in range(text.index("(", start), len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    return len(text) - 1
