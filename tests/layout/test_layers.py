"""A room imports only rooms below it: every import and cimport is held against a table.

Read are .py and .pyi (by their syntax tree, imports inside functions and under TYPE_CHECKING too)
and .pyx and .pxd (by their logical lines). Plug-ins are in nobody's row: they are found by entry
points.
"""

import ast
import re
from pathlib import Path

import pytest
from sources import CYTHON, FOLDERS, ROOT, logical_lines, module_of, package_files

GROUND = {"base", "certificates", "errors", "keys", "options", "security", "_unknown"}     # level 0
API = {"api", "errors", "events", "options", "security", "trace"}         # what the user sees
ANY = {"*"}         # but for what is in no wheel
NATIVE = "testing.native"

# room -> the rooms it may import besides itself; "" is mqcore/__init__
MAY_IMPORT = {
    # 6
    "": API | {"base", "_options"},
    "cli": API | {"", "journal", "cluster", "bridge", "monitor", "console", "http",
                  "spi"},               # URLs and names, read as sockets read them
    "__main__": {"cli"},
    "zmq": API | {"", "binding", "sock", "link", "wire", "spi", "base",      # with its native calls
                  "certificates"},
    "nng": API | {"", "control", "spi", "base"},    # endpoints as attributes; SP's numbers
    "journal": API | {"", "spi", "base"},       # its writer is a sink: an ops table of spi
    "bridge": API | {"", "journal", "spi", "base", "_unknown"},     # plug-ins, topics, queues
    "http": API | {"", "journal", "base"},              # sockets and topics behind HTTP
    "spark": API | {"", "journal", "spi"},      # addresses are checked on the driver
    "cluster": API | {"", "binding", "spi", "base"},    # waits as tasks do; URLs and resolvers
    "monitor": API | {"", "spi", "base"},       # reads what api and control know
    "console": API | {"", "monitor", "journal", "base"},    # a page over what the two read
    "testing": ANY,
    "testing.native": ANY,                      # tests/native: in no wheel
    # 5
    "trace": {"base", "errors"},                # headers and spans, without sockets
    "events": {"control"},                      # the classes of events, by name
    "api": {"devices", "binding", "control", "spi"} | GROUND,
    # 4, each above the next
    "control": {"binding", "sock", "link", "wire", "spi", "reactor"} | GROUND,
    "devices": {"binding", "sock", "link", "wire", "spi", "reactor"} | GROUND,
    "binding": {"sock", "link", "wire", "spi", "reactor"} | GROUND,
    "sock": {"link", "wire", "spi", "reactor"} | GROUND,
    # 3
    "link": {"wire", "spi", "reactor"} | GROUND,
    # plug-ins
    "transports": {"spi", "reactor"} | GROUND,
    "protocols": {"spi"} | GROUND,
    "resolvers": {"spi"} | GROUND,
    # 2
    "spi": GROUND,
    # 1
    "wire": GROUND,
    "reactor": GROUND,
    # 0
    "options": {"errors", "security", "_unknown"},
    "_unknown": {"errors"},
    "_options": {"security"},                   # types only
    "security": {"errors", "base", "certificates", "keys"},
    "certificates": {"errors", "base", "keys"},
    "keys": {"errors", "base"},
    "base": set(),
    "errors": set(),
}
CIMPORT = re.compile(r"^from\s+(?P<base>[.\w]+)\s+c?import\s+\(?(?P<names>[^)]*)"
                     r"|^c?import\s+(?P<whole>.+)")
LOOKED_UP = {"import_module", "__import__"}


def room_of(module: str) -> str | None:
    """None: not ours. A room that the table does not know comes back as it is."""
    first, *rest = module.split(".")
    if first in FOLDERS and first != "mqcore":
        return f"/{first}"                  # `import transports`: works only by accident
    if first != "mqcore":
        return None
    if rest[:2] == NATIVE.split("."):
        return NATIVE
    return rest[0] if rest and rest[0] not in {"__init__", "py"} else ""


def absolute(base: str, module: str) -> str:
    """`..spi.pipe` as seen from module."""
    dots = len(base) - len(base.lstrip("."))
    if not dots:
        return base
    package = module.split(".")[:-dots]
    return ".".join([*package, *filter(None, [base.lstrip(".")])])


def targets(base: str, names: list[str], module: str) -> list[str]:
    """What `from base import names` reaches: a name may be a module of a package."""
    base = absolute(base, module)
    if base == "mqcore":
        return [f"mqcore.{name}" if name in {*MAY_IMPORT, "*"} else "mqcore" for name in names]
    return [base]


def python_imports(text: str, module: str):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names]
            yield from ((node.lineno, name) for name in targets(base, names, module))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in LOOKED_UP and isinstance(node.args[0].value, str):
                yield node.lineno, absolute(node.args[0].value, module)
        elif isinstance(node, ast.Dict) and module == "mqcore.__init__":
            # the modules of the public names, imported when they are used
            yield from ((key.lineno, key.value) for key in node.keys
                        if isinstance(key, ast.Constant) and str(key.value).startswith("mqcore."))


def cython_imports(text: str, module: str):
    for line in logical_lines(text):
        match = CIMPORT.match(line.text)
        if not match:
            continue
        if match["whole"]:
            names = [part.split(" as ")[0].strip() for part in match["whole"].split(",")]
        else:
            parts = [part.split(" as ")[0].strip() for part in match["names"].split(",")]
            names = targets(match["base"], [part for part in parts if part], module)
        yield from ((line.number, name) for name in names)


def violations(root: Path) -> list[str]:
    found = []
    for path in package_files(root):
        module = module_of(path, root)
        here = room_of(module)
        where = path.relative_to(root).as_posix()
        if here not in MAY_IMPORT:
            found.append(f"{where}: the room {here!r} is not in the table")
            continue
        text = path.read_text()
        read = cython_imports if path.suffix in CYTHON else python_imports
        for number, name in read(text, module):
            there = room_of(name)
            if there is None or there == here or \
                    "*" in MAY_IMPORT[here] and there in MAY_IMPORT.keys() - {NATIVE}:
                continue
            if there not in MAY_IMPORT[here]:
                found.append(f"{where}:{number}: {here or 'mqcore'} may not import "
                             f"{there or 'mqcore itself'} ({name})")
    return found


def test_rooms_import_only_rooms_below():
    assert not violations(ROOT), "\n".join(violations(ROOT))


def test_the_table_has_no_circle():
    def below(room, seen=()):
        assert room not in seen, f"{room} is below itself: {seen}"
        for other in MAY_IMPORT[room] - ANY:
            below(other, (*seen, room))
    for room in MAY_IMPORT:
        below(room)


def test_plugins_are_in_nobodys_row():
    for room, may in MAY_IMPORT.items():
        assert not may & {"transports", "protocols", "resolvers"}, room


def test_it_reads_what_is_there():
    """A parser that finds nothing would make the test above pass."""
    found = {(module_of(path), name) for path in package_files(suffixes=CYTHON)
             for _, name in cython_imports(path.read_text(), module_of(path))}
    assert ("mqcore.base.ypipe", "mqcore.base.yqueue") in found
    assert ("mqcore.spi.pipe", "mqcore.base.ypipe") in found


PLANTED = [
    ("protocols/push.pyx", "from mqcore.transports.tcp cimport Tcp", "may not import transports"),
    ("transports/tcp.py", "from mqcore.protocols import push", "may not import protocols"),
    ("transports/tcp.py", "import mqcore.link.session as s", "may not import link"),
    ("transports/tcp.py", "from ..link import session", "may not import link"),
    ("transports/sub/deep.py", "from ...wire import zmtp", "may not import wire"),
    ("protocols/routing/fair.pxd", "from ...wire.codec cimport Codec", "may not import wire"),
    ("protocols/push.pyx", "cimport mqcore.base.message, mqcore.reactor.timers as t", "reactor"),
    ("protocols/push.pyx", "def f():\n    import os, mqcore.sock.core", "may not import sock"),
    ("protocols/push.pyx", "from mqcore.link.pipe \\\n    cimport (a,\n    b)", "import link"),
    ("mqcore/base/slab.pxd", "from mqcore.errors cimport x", "may not import errors"),
    ("mqcore/base/slab.py", "from . import yqueue\nfrom .. import errors", "may not import errors"),
    ("mqcore/wire/zmtp/codec.pyx", "from mqcore.spi.pattern cimport Pattern", "may not import spi"),
    ("mqcore/wire/a.py", "if TYPE_CHECKING:\n    from mqcore.reactor import epoll", "reactor"),
    ("mqcore/link/a.py", "def f():\n    from mqcore import sock", "may not import sock"),
    ("mqcore/link/a.py", "from mqcore import Socket", "may not import mqcore itself"),
    ("mqcore/binding/core.pyx", "from mqcore.control.context import Context", "import control"),
    ("mqcore/control/a.pyi", "from mqcore.api.socket import Socket", "may not import api"),
    ("mqcore/api/a.py", "import importlib as i\ni.import_module('mqcore.transports.t')", "transp"),
    ("mqcore/api/a.py", "import transports.tcp", "may not import /transports"),
    ("mqcore/testing/a.py", "from protocols import push", "may not import /protocols"),
    ("mqcore/testing/a.py", "from mqcore.testing.native import doors", "may not import testing.n"),
    ("mqcore/testing/a.py", "from .native.probe import Probe", "may not import testing.native"),
    ("mqcore/wire/a.pyx", "cimport mqcore.testing.native.threads", "may not import testing.native"),
    ("mqcore/cli/__init__.py", "from ..control import links", "may not import control"),
    ("mqcore/spi/__init__.py", "from .. import link", "may not import link"),
    ("mqcore/__init__.py", "HOMES = {'mqcore.control.hub': 'Hub'}", "may not import control"),
    ("mqcore/attic/a.py", "", "'attic' is not in the table"),
    ("mqcore/api/a.py", "from mqcore.attic import b", "may not import attic"),
]


@pytest.mark.parametrize(("path", "text", "expected"), PLANTED)
def test_a_planted_violation_is_caught(tmp_path, path, text, expected):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text + "\n")
    found = violations(tmp_path)
    assert len(found) == 1 and expected in found[0], found


ALLOWED = [
    ("protocols/push.pyx", "from mqcore.spi.pipe cimport Pipe\nfrom libc.stdint cimport uint8_t"),
    ("protocols/push.pyx", "from .routing.fair cimport A\nfrom mqcore.protocols.routing cimport b"),
    ("transports/tcp.py", "from mqcore import errors\nimport socket, mqcore.reactor.epoll"),
    ("mqcore/control/links.py", "from mqcore.binding.core import SocketCore\nfrom . import hub"),
    ("tests/native/bench.pyx", "from mqcore.protocols.push cimport x\nimport mqcore.base.slab"),
    ("tests/native/b.pyx", "from mqcore.testing.native.a cimport x\nfrom mqcore.testing import y"),
    ("mqcore/cli/__init__.py", "import mqcore as mq\nfrom mqcore import Socket"),
    ("mqcore/base/slab.pyx", '"""\nfrom mqcore.api import x\n"""\n# from mqcore.api import x'),
]


@pytest.mark.parametrize(("path", "text"), ALLOWED)
def test_what_is_allowed_passes(tmp_path, path, text):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text + "\n")
    assert violations(tmp_path) == []
