"""Which names of zmq a program uses that differ here. It is read, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import mqcore.zmq as zmq
from mqcore.zmq import options
from mqcore.zmq.constants import SocketOption, SocketType
from mqcore.zmq.differences import reason
from mqcore.zmq.shared import PATTERNS


class Reader(ast.NodeVisitor):
    """Collects (line, name with dots) of everything that comes from zmq."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._aliases: dict[str, str] = {}  # local name: the dotted one, "" for zmq itself

    def visit_Import(self, node: ast.Import) -> None:  # noqa: N802 - ast's names
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            if root == "zmq":
                if rest:
                    self.found.append((node.lineno, rest))
                self._aliases[alias.asname or "zmq"] = rest if alias.asname else ""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        root, _, rest = (node.module or "").partition(".")
        if node.level or root != "zmq":
            return
        for alias in node.names:
            name = f"{rest}.{alias.name}".strip(".")
            self.found.append((node.lineno, rest if alias.name == "*" else name))
            self._aliases[alias.asname or alias.name] = name

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        name = self._dotted(node)
        if name:
            self.found.append((node.lineno, name))
        else:
            if node.attr.upper() in SocketOption.__members__:
                self.found.append((node.lineno, node.attr.upper()))
            self.generic_visit(node)

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value)
            return None if before is None else f"{before}.{node.attr}".strip(".")
        return None


def differs(name: str) -> str | None:
    """Why a name, with dots from `zmq` on, is not as in pyzmq; None if it is."""
    why = reason(name)
    if why is not None:
        return why
    last = name.rpartition(".")[2]
    number = SocketOption.__members__.get(last)
    if number is not None:
        row = options.ROWS[number]
        return row.why or ("it is kept and does nothing" if row.hint else None)
    kind = SocketType.__members__.get(last)
    if kind is not None and kind not in PATTERNS:
        return "sockets of this type are not here yet"
    if "." not in name and not hasattr(zmq, name):
        return "pyzmq has no public name like that, or it is newer than this"
    return None


def check(path: str) -> Iterator[str]:
    """Lines like "program.py:12: zmq.auth: ..."."""
    reader = Reader()
    reader.visit(ast.parse(Path(path).read_text(), path))
    for line, name in dict.fromkeys(reader.found):
        why = differs(name)
        if why:
            yield f"{path}:{line}: zmq.{name}: {why}"
