"""MkDocs' hook: fills the pages that show what the code says, each time the site is built.

A page holds `<!-- generated: NAME -->`; NAME is a function of TABLES. Nothing of this is kept in
the repository, so it cannot be out of date. `<!-- included: PATH -->` is a Markdown file that lies
beside the code; its links to other such files become plain text. `<!-- picture: NAME -->` becomes
the drawing of docs/pictures/NAME.txt (tools/pictures.py).
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- generated: (\w+) -->")
PICTURE = re.compile(r"<!-- picture: ([\w-]+) -->")
INCLUDED = re.compile(r"<!-- included: (\S+) -->")
LOCAL_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


def _option(row: Any) -> str:
    from mqcore import options

    facts = [options._type_word(row), f"default `{_default(row)}`"]
    if row.type in ("seconds", "int", "size") and abs(row.range[1]) < 1 << 62:
        low, high = row.range
        facts.append(f"from {low:g}" if high >= 1e9 else f"{low:g} to {high:g}")
    if row.unit and row.type == "int":
        facts.append(f"unit: {row.unit}")
    if row.patterns:
        facts.append("only " + ", ".join(f"`{name}`" for name in row.patterns))
    if "endpoint" in row.scope:
        facts.append("also per endpoint")
    none = f" `None`: {row.none}." if row.none and "None: " not in row.doc else ""
    text = row.doc[:1].upper() + row.doc[1:]
    return f"### {row.name}\n\n*{'; '.join(facts)}*\n\n{_plain(text)}.{none}\n"


def _default(row: Any) -> str:
    if row.type == "size" and row.default and row.default % (1 << 20) == 0:
        mib = row.default >> 20
        return f"{mib >> 10} GiB" if mib % 1024 == 0 else f"{mib} MiB"
    return "{}" if row.type == "metadata" else repr(row.default)


def _plain(text: str) -> str:
    """Escape what Markdown would take for a tag, a link or emphasis."""
    return re.sub(r"([<>*_|\[\]])", r"\\\1", text) if "`" not in text else text


def options() -> str:
    from mqcore.options import CORE, table
    from mqcore.spi.registry import all_options

    rows = table(all_options())
    groups: dict[str, list[Any]] = {"Every socket": [], "Some patterns": [], "Transports": []}
    for row in rows.values():
        of_core = row.name in CORE
        groups["Every socket" if of_core and not row.patterns else
               "Some patterns" if row.patterns else "Transports"].append(row)
    return "\n".join(f"## {title}\n\n" + "\n".join(map(_option, rows))
                     for title, rows in groups.items())


def drops() -> str:
    from mqcore.spi.drop import DROP_REASONS

    return "\n".join(["| reason | meaning |", "|---|---|",
                      *(f"| `{name}` | {why} |" for name, why in DROP_REASONS)])


def errors() -> str:
    from mqcore.errors import all_errors

    lines = ["| class | code | also a | fields |", "|---|---|---|---|"]
    for kind in all_errors():
        bases = [base.__name__ for base in kind.__mro__[1:] if base.__module__ == "builtins"
                 and base not in (Exception, BaseException, object)]
        own = ", ".join(f"`{name}`" for name in kind.fields)
        lines.append(f"| [`{kind.__name__}`][mqcore.{kind.__name__}] | `{kind.code}` "
                     f"| {', '.join(f'`{base}`' for base in bases)} | {own} |")
    return "\n".join(lines)


def _commands(command: Any, path: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    import click

    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent,
                            max_content_width=88, terminal_width=88)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(inner, f"{path} {name}", context)


def commands() -> str:
    from mqcore.cli import cli

    return "\n".join(f"## {path}\n\n```text\n{text}\n```\n" for path, text in _commands(cli, "mq"))


def plugins() -> str:
    import mqcore as mq

    lines = ["| kind | name | form | what it is |", "|---|---|---|---|"]
    for listed in (mq.transports, mq.filters, mq.resolvers, mq.strategies):
        lines += [f"| {info.kind} | `{info.name}` | {info.form} | {info.doc.replace('|', ' ')} |"
                  for info in listed() if info.distribution == "mqcore" and not info.refused]
    return "\n".join(lines)


def events() -> str:
    from mqcore.events import Event

    return ", ".join(f"`{kind.__name__}`" for kind in Event.__subclasses__())


def _rows(heads: tuple[str, ...], rows: Any) -> str:
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|",
                      *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def _machine(module: Any, *heads: str) -> str:
    """A module's STATES and TRANSITIONS."""
    codes = [(f"`{name}`", meaning) for name, _, meaning in module.STATES]
    moves = [[f"`{name}`" if name.isupper() and name[0].isalpha() else name for name in row]
             for row in module.TRANSITIONS]
    return _rows(("state", "meaning"), codes) + "\n\n" + _rows(heads, moves)


def notes() -> str:
    lease = import_module("mqcore.link.lease")

    return _rows(("note", "left by", "meaning"),
                 [(f"`{name}`", who, meaning) for name, _, who, meaning in lease.NOTES])


def engine() -> str:
    lease = import_module("mqcore.link.lease")

    return _machine(lease, "in", "event", "then", "its pump must")


def watch() -> str:
    module = import_module("mqcore.sock.watch")

    return _machine(module, "in", "inside", "event", "then")


def request() -> str:
    req = import_module("mqcore.protocols.req")

    return _machine(req, "in", "event", "then", "the call returns")


def survey() -> str:
    surveyor = import_module("mqcore.protocols.surveyor")

    return _machine(surveyor, "in", "event", "then", "the call returns")


TABLES: dict[str, Callable[[], str]] = {
    "options": options, "drops": drops, "errors": errors, "commands": commands,
    "plugins": plugins, "events": events, "notes": notes, "engine": engine, "watch": watch,
    "request": request, "survey": survey}


def included(path: str) -> str:
    return LOCAL_LINK.sub(r"\1", (ROOT / path).read_text())


def picture(name: str) -> str:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    assert spec and spec.loader
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    return str(pictures.svg(pictures.read(name)))


def on_page_markdown(markdown: str, **_: Any) -> str:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    markdown = INCLUDED.sub(lambda match: included(match[1]), markdown)
    markdown = PICTURE.sub(lambda match: picture(match[1]), markdown)
    return MARK.sub(lambda match: TABLES[match[1]](), markdown)
