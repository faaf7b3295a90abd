"""Plug-ins from outside use what is meant for them: the public names of mqcore, `mqcore.spi` and
`mqcore.testing`; what they cimport, also what the headers of spi are written in terms of."""

import re

import pytest
from sources import CYTHON, ROOT, logical_lines

import mqcore

ROOMS = ("mqcore.spi", "mqcore.testing", "mqcore.events")
HEADERS = (*ROOMS, "mqcore.base", "mqcore.protocols.routing")
LINE = re.compile(r"^(?:from\s+(?P<base>[\w.]+)\s+)?(?P<verb>c?import)\s+\(?(?P<names>[^)]*)")
EXAMPLES = sorted(path for path in (ROOT / "examples" / "plugins").rglob("*")
                  if path.suffix in {".py", *CYTHON} and "build" not in path.parts)
TEMPLATES = sorted(path for path in (ROOT / "mqcore" / "cli" / "templates").rglob("*.in")
                   if path.with_suffix("").suffix in {".py", *CYTHON})


def inside(module: str, rooms) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


def strays(text: str) -> list[str]:
    """What of mqcore a source uses and may not."""
    found = []
    for line in logical_lines(text):
        match = LINE.match(line.text)
        if not match:
            continue
        rooms = HEADERS if match["verb"] == "cimport" else ROOMS
        names = [part.split(" as ")[0].strip() for part in match["names"].split(",")]
        names = [name for name in names if name]
        if match["base"] == "mqcore":
            found += [f"mqcore.{name}" for name in names
                      if name not in mqcore.__all__ and not inside(f"mqcore.{name}", rooms)]
        else:
            found += [module for module in ([match["base"]] if match["base"] else names)
                      if inside(module, ["mqcore"]) and module != "mqcore"
                      and not inside(module, rooms)]
    return found


@pytest.mark.parametrize("path", [*EXAMPLES, *TEMPLATES], ids=lambda p: p.name.removesuffix(".in"))
def test_it_uses_only_what_is_meant_for_plugins(path):
    assert strays(path.read_text()) == []


PLANTED = {
    "import mqcore.link.engine as e": ["mqcore.link.engine"],
    "from mqcore.errors import BindError": ["mqcore.errors"],
    "from mqcore import (Push,\n    sock)": ["mqcore.sock"],
    "def f():\n    from mqcore.control.loop import Loop": ["mqcore.control.loop"],
    "from mqcore.base.slab import pool_new": ["mqcore.base.slab"],
    "cimport mqcore.wire.codec": ["mqcore.wire.codec"],
    "from mqcore.protocols.push cimport x": ["mqcore.protocols.push"],
    "from mqcore.base.slab cimport Pool, pool_new": [],
    "from mqcore.protocols.routing.ring cimport Ring": [],
    "import mqcore as mq\nfrom mqcore import BindError, Pull\nimport mqcore.testing, socket": [],
}


@pytest.mark.parametrize("text", PLANTED)
def test_a_planted_import_is_found(text):
    assert strays(text) == PLANTED[text]


def test_there_is_something_to_look_at():
    assert len(EXAMPLES) >= 2 and len(TEMPLATES) >= 2
