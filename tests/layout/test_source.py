"""House rules that a machine can check: greps over our own sources, and the linters.

Each rule is a function from a root folder to a list of complaints, so that the tests below can
run it on planted mistakes too. The exceptions are in tests/support/allowed.py.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from allowed import (
    GENERATED,
    GLOBALS,
    LONG,
    LONG_FUNCTIONS,
    NATIVE_ROOMS,
    NEEDS_GIL,
    PATCHED,
    UNPATCHED,
    WITH_GIL,
)
from sources import (
    CODE,
    CYTHON,
    ROOT,
    blank,
    cython_functions,
    logical_lines,
    module_of,
    package_files,
    tracked,
)

COLUMNS = 100
FUNCTION_LINES = 80
FUNCTION_LINES_WITHOUT_REASON = 50
FILE_LINES = 800
FILE_LINES_WITHOUT_REASON = 500
BREAKABLE = re.compile(r"\bthreading\.(Event|Condition|Semaphore|Barrier)\(")
WAITS = re.compile(r"\s*(import|from) (threading|select|selectors|socket|socketserver|_thread)\b")
WEAK_ORDER = re.compile(r"\bmemory_order_(?!seq_cst)\w+")
MUTABLE_DISPLAY = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
# calls whose result does not change
IMMUTABLE_CALLS = {
    "compile", "frozenset", "tuple", "str", "bytes", "int", "float", "bool", "namedtuple",
    "NewType",
    "TypeVar", "ParamSpec", "Struct", "MappingProxyType", "getLogger", "Path", "object", "IntEnum",
    "IntFlag", "Enum", "version", "cast", "attrgetter", "itemgetter", "partial", "property", "len",
    "sum", "min", "max", "join", "format", "contextvar", "ContextVar", "sorted", "get", "getenv",
}


def relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def cython_files(root: Path) -> list[Path]:
    return package_files(root, CYTHON)


# -- Cython --------------------------------------------------------------------------------------

def native_functions(root: Path) -> list[str]:
    found = []
    for path in cython_files(root):
        where = relative(path, root)
        if not where.startswith(tuple(room + "/" for room in NATIVE_ROOMS)):
            continue
        for function in cython_functions(path.read_text()):
            declared = "noexcept nogil" in function.tail or "except" in function.tail.split()
            if not (function.in_class or declared or (where, function.name) in NEEDS_GIL):
                found.append(f"{where}:{function.line.number}: {function.name}() "
                             "is not `noexcept nogil`")
    return found


def gil_takers(root: Path) -> list[str]:
    return [f"{relative(path, root)}:{line.number}: takes the GIL"
            for path in cython_files(root) if relative(path, root) not in WITH_GIL
            for line in logical_lines(path.read_text()) if re.search(r"\bwith\s+gil\b", line.text)]


def unexplained_orders(root: Path) -> list[str]:
    """`SYNC:` stands on a line of the statement, or in the comment right above it or above a run of
    such statements."""
    found = []
    for path in cython_files(root):
        raw = path.read_text().split("\n")
        for line in logical_lines(path.read_text()):
            if not WEAK_ORDER.search(line.text) or re.match(r"(from|cimport|import)\b", line.text):
                continue
            top = line.number - 1
            while top > 0 and re.match(r"\s*#", raw[top - 1]) or WEAK_ORDER.search(raw[top - 1]):
                top -= 1
            if not any("SYNC:" in text for text in raw[top:line.last]):
                found.append(f"{relative(path, root)}:{line.number}: a memory order without SYNC:")
    return found


def foreign_declarations(root: Path) -> list[str]:
    return [f"{relative(path, root)}:{line.number}: `cdef extern` belongs in a .pxd of its own"
            for path in package_files(root, {".pyx"})
            for line in logical_lines(path.read_text()) if re.match(r"cdef\s+extern\b", line.text)]


# -- sizes ---------------------------------------------------------------------------------------

def code_files(root: Path) -> list[Path]:
    return [path for path in tracked(root) if path.suffix in CODE]


def python_spans(text: str):
    statements: list[ast.AST] = [ast.parse(text)]
    for node in statements:         # not ast.walk(): most of a tree is expressions
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements += getattr(node, block, ())


def cython_spans(text: str):
    lines = logical_lines(text)
    for i, line in enumerate(lines):
        match = re.match(r"(?:async\s+)?(?:def|cdef|cpdef)\b(?! class).*?\b(\w+)\s*\(.*:$",
                         line.text)
        if not match or "=" in line.text.split("(")[0]:
            continue
        last = line.last
        for inner in lines[i + 1:]:
            if inner.indent <= line.indent:
                break
            last = inner.last
        yield match[1], line.number, last - line.number + 1


def long_functions(root: Path) -> list[str]:
    found = []
    for path in code_files(root):
        spans = cython_spans if path.suffix in CYTHON else python_spans
        where = relative(path, root)
        for name, number, n in spans(path.read_text()):
            most = (FUNCTION_LINES if (where, name) in LONG_FUNCTIONS
                    else FUNCTION_LINES_WITHOUT_REASON)
            if n > most:
                found.append(f"{where}:{number}: {name}() has {n} lines; {most} go")
    return found


def long_files(root: Path) -> list[str]:
    found = []
    for path in code_files(root):
        n = len(path.read_text().splitlines())
        where = relative(path, root)
        if where in GENERATED:
            continue
        if n > FILE_LINES:
            found.append(f"{where}: {n} lines, {FILE_LINES} is the limit")
        elif n > FILE_LINES_WITHOUT_REASON and where not in LONG:
            found.append(f"{where}: {n} lines without a reason in LONG")
    return found


def long_lines(root: Path) -> list[str]:
    return [f"{relative(path, root)}:{number}: {len(line)} columns"
            for path in code_files(root)
            for number, line in enumerate(path.read_text().split("\n"), 1) if len(line) > COLUMNS]


# -- names and paths -----------------------------------------------------------------------------

def shadowed_modules(root: Path) -> list[str]:
    """A module called like one of the standard library must not be reached by a relative import."""
    files = package_files(root)
    named = {path.stem for path in files if path.stem in sys.stdlib_module_names}
    found = []
    for path in files:
        for line in logical_lines(path.read_text()):
            match = re.match(r"from\s+\.+(\w*)\s+c?import\s+\(?([^)]*)", line.text)
            if not match:
                continue
            names = [match[1]] if match[1] else re.split(r"\s*,\s*", match[2])
            found += [f"{relative(path, root)}:{line.number}: {name} is a standard module's name"
                      for name in names if name.split(" as ")[0].strip() in named]
    return found


MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:work|root|home)\b")
TEXT = CODE | {".md", ".toml", ".in", ".c", ".h", ".hpp", ".json", ".txt", ".cfg", ".sh", ""}


def machine_paths(root: Path) -> list[str]:
    found = []
    for path in tracked(root):
        if path.suffix in TEXT and path != Path(__file__):
            for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
                if MACHINE_PATH.search(line):
                    found.append(f"{relative(path, root)}:{number}: of one machine: {line.strip()}")
    return found


# -- process-wide state --------------------------------------------------------------------------

def is_constant(name: str) -> bool:
    return name.lstrip("_").isupper() or name.startswith("__") and name.endswith("__")


def called_name(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def python_globals(text: str):
    """(line, name) of what can change: mutable values at the top level, and every `global`."""
    tree = ast.parse(text)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else (
            [node.target] if isinstance(node, ast.AnnAssign) and node.value else [])
        for target in targets:
            value = node.value
            changes = isinstance(value, MUTABLE_DISPLAY) or (
                isinstance(value, ast.Call) and called_name(value) not in IMMUTABLE_CALLS)
            if changes and isinstance(target, ast.Name) and not is_constant(target.id):
                yield node.lineno, target.id
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from ((node.lineno, name) for name in node.names)


CYTHON_VARIABLE = re.compile(r"^cdef\s+(?!(?:inline|extern|class|struct|enum|union|cppclass"
                             r"|packed)\b)"
                             r"(?:(?:public|readonly|const|unsigned|signed|long)\s+)*"
                             r"(?:object|[\w.]+(?:\[[^\]]*\])*)\s*\**\s*(?P<rest>[^(:]+?)$")


MUTABLE_AT_TOP = re.compile(r"_?[a-z]\w*\s*(:[^=]*)?=\s*(\[|\{|dict\(|list\(|set\()")


def cython_globals(text: str):
    constants = set()
    for line in logical_lines(text):
        if line.indent == 0 and re.match(r"cdef\b", line.text) and not line.text.endswith(":"):
            head = line.text.split("=")[0].strip()
            match = CYTHON_VARIABLE.match(head)
            if match:
                for part in match["rest"].split(","):
                    name = re.sub(r"\[.*", "", part).strip(" *")
                    constants |= {name} if is_constant(name) else set()
                    if not is_constant(name):
                        yield line.number, name
        elif line.indent == 0 and MUTABLE_AT_TOP.match(line.text):
            yield line.number, re.match(r"\w+", line.text)[0]
        elif match := re.match(r"global\s+(.+)", line.text):
            yield from ((line.number, name.strip()) for name in match[1].split(","))
        elif line.indent and (match := re.match(r"(\w+)[\w.\[\]]*\s*[-+*|&^]?=(?!=)", line.text)):
            if match[1] in constants:
                yield line.number, match[1]


def process_wide(root: Path) -> list[str]:
    found = []
    for path in package_files(root, {".py", ".pyx"}):
        where = relative(path, root)
        read = cython_globals if path.suffix == ".pyx" else python_globals
        for number, name in read(path.read_text()):
            if (where, name) not in GLOBALS:
                found.append(f"{where}:{number}: `{name}` lives as long as the process; "
                             "if it must, name it in GLOBALS with the reason")
    return found


def patched_waits(root: Path) -> list[str]:
    """gevent replaces these modules' threads, locks and waits; base/native.py has the system's."""
    found = []
    for path in package_files(root, {".py", ".pyx"}):
        where = relative(path, root)
        if not where.startswith(UNPATCHED) or where in PATCHED:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if WAITS.match(line):
                found.append(f"{where}:{number}: take it from mqcore.base.native")
    return found


def breakable_waits(root: Path) -> list[str]:
    """Ctrl-C may leave their lock taken for ever; base/waits.pyx has safe ones."""
    found = []
    for path in package_files(root, {".py", ".pyx"}):
        where = relative(path, root)
        if where.startswith("mqcore/testing/"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if BREAKABLE.search(line):
                found.append(f"{where}:{number}: take it from mqcore.base.waits")
    return found


def stale_rows(root: Path) -> list[str]:
    """Exceptions whose file is gone, so that the tables do not rot."""
    rows = [where for where, _ in (*NEEDS_GIL, *GLOBALS, *LONG_FUNCTIONS)]
    rows += [*LONG, *PATCHED]
    return [f"{where} is named in a table and does not exist" for where in rows
            if not (root / where).exists()]


def unneeded_reasons(root: Path) -> list[str]:
    """Rows for functions that are short by now, or gone."""
    found = []
    for where, name in LONG_FUNCTIONS:
        path = root / where
        spans = cython_spans if path.suffix in CYTHON else python_spans
        sizes = [n for known, _, n in spans(path.read_text()) if known == name]
        if max(sizes, default=0) <= FUNCTION_LINES_WITHOUT_REASON:
            found.append(f"{where}: {name}() needs no row in LONG_FUNCTIONS")
    return found


RULES = [native_functions, gil_takers, unexplained_orders, foreign_declarations, long_functions,
         long_files, long_lines, shadowed_modules, machine_paths, process_wide, patched_waits,
         breakable_waits, stale_rows]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule):
    found = rule(ROOT)
    assert not found, "\n".join(["", *found])


def test_every_reason_for_a_long_function_is_needed():
    assert not unneeded_reasons(ROOT)


@pytest.mark.parametrize("linter", [
    "ruff", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cython-lint", "mypy"))])
def test_linter(linter):
    answer = subprocess.run([sys.executable, ROOT / "tools" / "lint.py", linter],
                            capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


# -- the rules find what they look for -----------------------------------------------------------

BODY = "    pass\n" * 51
PLANTED = [
    (native_functions, "mqcore/link/a.pyx", "cdef int f(int a):\n    return a\n"),
    (native_functions, "mqcore/base/a.pxd", "cdef int f(int a) nogil\n"),
    (native_functions, "protocols/a.pyx", "cdef inline int* f(A* a,\n int b) noexcept:\n a\n"),
    (native_functions, "transports/a.pyx", "cdef object f():  # noexcept nogil\n    return 1\n"),
    (gil_takers, "mqcore/link/a.pyx", "cdef void f() noexcept nogil:\n    with gil:\n        a\n"),
    (gil_takers, "mqcore/sock/a.pyx", "cdef void f() noexcept with gil:\n    pass\n"),
    (unexplained_orders, "mqcore/base/a.pyx", "def f():\n    x.load(memory_order_acquire)\n"),
    (unexplained_orders, "mqcore/base/a.pyx", "# SYNC: far\n\nf(1,\n    memory_order_release)\n"),
    (foreign_declarations, "mqcore/base/a.pyx", 'cdef extern from "<a.h>":\n    int a()\n'),
    (long_functions, "mqcore/base/a.pyx", "cdef int f(int a) noexcept nogil:\n" + BODY),
    (long_functions, "mqcore/api/a.py", "class A:\n    def f(self):\n" + "        pass\n" * 50),
    (long_files, "mqcore/api/a.py", "x = 1\n" * 501),
    (long_files, "mqcore/api/a.py", "x = 1\n" * 801),
    (long_lines, "mqcore/api/a.py", "#" * 101 + "\n"),
    (shadowed_modules, "mqcore/zmq/select.py", "from . import a, select\n"),
    (shadowed_modules, "mqcore/zmq/ssl.py", "from .ssl import b\n"),
    (machine_paths, "mqcore/api/a.py", "x = '/" + "home/me/x'\n"),
    (machine_paths, "README.md", "see /" + "work/x\n"),
    (process_wide, "mqcore/api/a.py", "cache = {}\n"),
    (process_wide, "mqcore/api/a.py", "_seen: set[int] = set()\n"),
    (process_wide, "mqcore/api/a.py", "_x = None\ndef f():\n    global _x\n    _x = 1\n"),
    (process_wide, "mqcore/api/a.py", "contexts = weakref.WeakSet()\n"),
    (process_wide, "mqcore/base/a.pyx", "cdef int counter = 0\n"),
    (process_wide, "mqcore/base/a.pyx", "cdef Pool* pool\n"),
    (process_wide, "mqcore/base/a.pyx", "cdef size_t[3] TABLE = [1]\ndef f():\n    TABLE[1] = 2\n"),
    (process_wide, "mqcore/base/a.pyx", "cdef dict names = {}\n"),
    (process_wide, "mqcore/base/a.pyx", "names = {}\n"),
    (breakable_waits, "mqcore/control/a.py", "done = threading.Event()\n"),
    (patched_waits, "mqcore/control/a.py", "import threading\n"),
    (patched_waits, "mqcore/sock/a.pyx", "from threading import Lock\n"),
    (patched_waits, "mqcore/zmq/a.py", "from threading import Event\n"),
    (patched_waits, "mqcore/journal/a.py", "def f():\n    import select\n"),
    (patched_waits, "mqcore/resolvers/a.py", "import socket\n"),
    (patched_waits, "mqcore/nng/a.py", "from socket import AF_INET\n"),
]
CLEAN = [
    (native_functions, "mqcore/link/a.pxd", "cdef int f(int a) noexcept nogil  # Status\n"
     "cdef int g() except -1\ncdef struct A:\n    int (*f)(int a)\ncdef int x = f(1)\n"
     "cdef class B:\n    cdef int m(self)\ncdef void (*callback)(int)\n"),
    (native_functions, "mqcore/link/a.pxd", 'cdef extern from "<a.h>" nogil:\n    int f(int a)\n'),
    (native_functions, "mqcore/sock/a.pyx", "cdef object f():\n    return 1\n"),
    (gil_takers, "mqcore/spi/python/pattern_ops.pyx",
     "cdef void f() noexcept with gil:\n    pass\n"),
    (gil_takers, "mqcore/link/a.pyx", '"""Never with gil here."""\n'),
    (unexplained_orders, "mqcore/base/a.pyx", "from a cimport (\n    memory_order_relaxed)\n"
     "# SYNC: a\nx.load(memory_order_acquire)\nx.load(memory_order_relaxed)  # SYNC: b\n"
     "x.load(memory_order_seq_cst)\n"),
    (long_functions, "mqcore/base/a.pyx", "cdef int f() noexcept nogil:\n" + "    pass\n" * 49),
    (shadowed_modules, "mqcore/zmq/asyncio.py", "import mqcore.zmq.asyncio\nimport asyncio\n"),
    (machine_paths, "README.md", "https://host/home/x, ~/work, a/root\n"),
    (process_wide, "mqcore/api/a.py", "__all__ = []\nTABLE = {}\n_re = compile('x')\nx = (1,)\n"),
    (process_wide, "mqcore/base/a.pyx", "cdef size_t[3] TABLE = [1, 2, 3]\ncdef int f(int a):\n"
     "    cdef int b = 1\n    TABLES = 1\ncdef class A:\n    cdef int x\nOPS.size = 1\n"),
]


def plant(tmp_path: Path, where: str, text: str) -> None:
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).write_text(text)


@pytest.mark.parametrize(("rule", "where", "text"), PLANTED,
                         ids=[f"{i}-{row[0].__name__}" for i, row in enumerate(PLANTED)])
def test_a_planted_mistake_is_found(tmp_path, rule, where, text):
    plant(tmp_path, where, text)
    assert len(rule(tmp_path)) == 1, rule(tmp_path)


@pytest.mark.parametrize(("rule", "where", "text"), CLEAN,
                         ids=[f"{i}-{row[0].__name__}" for i, row in enumerate(CLEAN)])
def test_what_is_allowed_passes(tmp_path, rule, where, text):
    plant(tmp_path, where, text)
    assert rule(tmp_path) == []


def test_the_reader_finds_our_functions():
    seen = {function.name for function in
            cython_functions((ROOT / "mqcore/base/slab.pxd").read_text())}
    assert {"pool_new", "heap_grow", "owner_data", "owner_release", "pool_drain_released"} <= seen
    assert module_of(ROOT / "protocols" / "push.pyx") == "mqcore.protocols.push"
    assert blank("a = 'x' # y") == "a =        "


def test_readme_is_up_to_date():
    """It is short, and tools/readme.py finds the places that it fills."""
    answer = subprocess.run([sys.executable, ROOT / "tools" / "readme.py", "--check"],
                            capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
