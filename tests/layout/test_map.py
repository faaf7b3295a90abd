"""mqcore/README.md, the map of the code: its file map names exactly the modules that exist, and its
tables name functions that are in the files beside them."""

import re
from pathlib import Path

import pytest
from sources import ROOT, tracked

MAP = "mqcore/README.md"
# modules that C declarations alone fill, and packages that mirror pyzmq's: one sentence each
UNNAMED = ("includes", "__init__")
MIRRORED = ("zmq/alias", "zmq/asyncio", "zmq/auth", "zmq/backend", "zmq/devices", "zmq/eventloop",
            "zmq/green", "zmq/log", "zmq/ssh", "zmq/sugar", "zmq/utils")
ELSEWHERE = ("cli/templates", "spark/plugin")       # data, and what Spark finds by its own name

SOURCE = {".py", ".pyi", ".pyx", ".pxd", ".hpp"}
NAMES = re.compile(r"`([\w.]+)`")
PATHS = re.compile(r"`((?:[\w.]+/)*[\w.]+\.(?:pyx?|pyi|pxd|hpp|md|toml))`")


def modules(root: Path) -> set[str]:
    found = set()
    for path in tracked(root):
        place = path.relative_to(root)
        if place.parts[0] != "mqcore" or path.suffix not in SOURCE or path.stem in UNNAMED:
            continue
        name = place.relative_to("mqcore").with_suffix("").as_posix()
        if not name.startswith((*MIRRORED, *ELSEWHERE)):
            found.add(name)
    return found


def mapped(text: str) -> list[str]:
    """What the tables of the file map name: the first cell's names, under their package."""
    found, package = [], ""
    for line in text.partition("\n## The file map\n")[2].partition("\n## ")[0].splitlines():
        if line.startswith("### "):
            package = line[4:].strip()
        elif line.startswith("| `"):
            prefix = "" if package == "mqcore" else f"{package}/"
            found += [prefix + name for name in NAMES.findall(line.split("|")[1])]
    return found


def exists(name: str, root: Path) -> Path | None:
    return next((path for path in (root / "mqcore" / name, root / name) if path.is_file()), None)


def faults(root: Path) -> list[str]:
    text = (root / MAP).read_text()
    named = mapped(text)
    there = modules(root)
    found = [f"named twice: {name}" for name in sorted({n for n in named if named.count(n) > 1})]
    found += [f"not in the map: {name}" for name in sorted(there - set(named))]
    found += [f"no such module: {name}" for name in sorted(set(named) - there)]
    for name in sorted(set(PATHS.findall(text))):
        if exists(name, root) is None:
            found.append(f"no such file: {name}")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and PATHS.fullmatch(cells[2]) and line.startswith("|"):
            path = exists(cells[2].strip("`"), root)
            source = path.read_text() if path else ""
            found += [f"{cells[2]} has no {name}" for name in NAMES.findall(cells[1])
                      if path and not re.search(rf"\b{re.escape(name)}\b", source)]
    return found


def test_the_map_names_what_is_there():
    assert not faults(ROOT), "\n".join(faults(ROOT))


def test_the_map_is_read():
    """A reader that finds nothing would pass the test above."""
    text = (ROOT / MAP).read_text()
    assert {"link/engine", "wire/zmtp/codec", "options"} <= set(mapped(text))
    assert {"link/engine.pyx", "protocols/push.pyx"} <= set(PATHS.findall(text))


GOOD = ("| step | function | file |\n| a | `run` | `link/a.py` |\n\n## The file map\n\n### link\n\n"
        "| module | task |\n|---|---|\n| `a` | x |\n\n## How\n")


@pytest.mark.parametrize(("text", "expected"), [
    (GOOD, []),
    (GOOD.replace("| `a` | x |\n", ""), ["not in the map: link/a"]),
    (GOOD.replace("| `a` | x |", "| `a` | x |\n| `b` | y |"), ["no such module: link/b"]),
    (GOOD.replace("| `a` | x |", "| `a` | x |\n| `a` | y |"), ["named twice: link/a"]),
    (GOOD.replace("### link", "### sock"), ["not in the map: link/a", "no such module: sock/a"]),
    (GOOD + "see `link/gone.pyx`\n", ["no such file: link/gone.pyx"]),
    (GOOD.replace("`run`", "`ran`"), ["`link/a.py` has no ran"]),
])
def test_a_wrong_map_is_found(tmp_path, text, expected):
    (tmp_path / "mqcore" / "link").mkdir(parents=True)
    (tmp_path / "mqcore" / "link" / "a.py").write_text("def run(): ...\n")
    (tmp_path / MAP).write_text(text)
    assert faults(tmp_path) == expected
