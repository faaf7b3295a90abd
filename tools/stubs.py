"""Write mqcore/__init__.pyi and mqcore/_options.pyi, the types that editors and mypy read.

    python tools/stubs.py [--check]

The signatures come from tools/signatures.pyi, the options from the table (mqcore/options.py and the
plug-ins), and every text from the running code, half of which is compiled. `--check` writes
nothing; it exits with status 1 if a file is not what this script makes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from mqcore import options  # noqa: E402
from mqcore.api.patterns import CLASSES  # noqa: E402
from mqcore.options import Option  # noqa: E402
from mqcore.spi import registry  # noqa: E402

SIGNATURES = "tools/signatures.pyi"
PUBLIC = "mqcore/__init__.pyi"
OPTIONS = "mqcore/_options.pyi"
WRITTEN = "# Written by tools/stubs.py. Do not edit.\n"
COLUMNS = 96

# what the constructors of some patterns take besides options
OWN_ARGUMENTS = {"sub": "topics: Iterable[Topic] | Topic = ()",
                 "dish": "groups: Iterable[Topic] | Topic = ()"}
# where the running code has the calls of classes that only the signatures know
HOMES = ("Socket", "Dealer", "Sub", "Req", "Surveyor", "Router", "Pair")
RUNNING = {"ReqContext": "mqcore.api.sp_contexts", "RepContext": "mqcore.api.sp_contexts",
           "SubContext": "mqcore.api.sp_contexts", "SurveyorContext": "mqcore.api.survey",
           "Answers": "mqcore.api.exchanges", "_Recorder": "mqcore.api.recorder",
           "_Running": "mqcore.api.running", "_Context": "mqcore.api.sp_contexts",
           "_SendingContext": "mqcore.api.sp_contexts"}
RENAMED = {"_Recorder": "Recorder", "_Running": "Running", "_Context": "Line",
           "_SendingContext": "SendingLine"}


# -- the options -----------------------------------------------------------------------------------

TYPES = {"seconds": "float", "int": "int", "size": "int", "bool": "bool", "bytes": "bytes",
         "text": "str", "secret": "str", "metadata": "Mapping[str, bytes | str]",
         "security": "Security"}


def annotation(row: Option) -> str:
    """The type of an option's values."""
    words = ", ".join(f'"{word}"' for word in row.range)
    if row.type == "choice":
        hint = f"Literal[{words}]"
    elif row.type == "choices":
        hint = f"Collection[Literal[{words}]]"
    elif row.type == "object":
        hint = " | ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in row.range)
    else:
        hint = TYPES[row.type]
    return hint + (" | None" if row.none else "")


def of_all() -> list[Option]:
    """The options that every pattern has; those of transports, filters and resolvers last."""
    return [row for row in (*options.TABLE, *registry.link_options()) if not row.patterns]


def of_pattern(pattern: str) -> list[Option]:
    """The options that a pattern has besides, on its sockets."""
    rows = options.table(registry.pattern_options(pattern)).values()
    return [row for row in rows if pattern in row.patterns and "socket" in row.scope]


def class_name(pattern: str) -> str:
    """The TypedDict of a pattern's constructor."""
    return f"{CLASSES[pattern].__name__}Options" if of_pattern(pattern) else "SocketOptions"


def fields(rows: Iterable[Option]) -> str:
    text = ""
    for row in rows:
        text += f"    {row.name}: {annotation(row)}\n"
        text += quoted(options.describe(row), 4)
    return text or "    ...\n"


def typed_dict(name: str, base: str, rows: Iterable[Option], doc: str) -> str:
    return f"class {name}({base}, total=False):\n{quoted(doc, 4)}{fields(rows)}\n"


def option_classes() -> dict[str, str]:
    """The classes of mqcore/_options.pyi, by name."""
    link = [row for row in of_all() if "endpoint" in row.scope]
    rest = [row for row in of_all() if "endpoint" not in row.scope]
    named = [row for row in options.TABLE if row.patterns and "endpoint" in row.scope]
    every = {row.name: row for pattern in CLASSES for row in of_pattern(pattern)}
    return {
        "EndpointOptions": typed_dict("EndpointOptions", "TypedDict", link,
                                      "What bind() and connect() take, and sockets too."),
        "NamedEndpointOptions": typed_dict("NamedEndpointOptions", "EndpointOptions", named,
                                           "What bind() and connect() of Router and Stream take."),
        "Options": typed_dict("Options", "EndpointOptions", rest,
                              "The options that every pattern has."),
        "ContextOptions": typed_dict("ContextOptions", "Options", every.values(),
                                     "The defaults that a Context takes for its sockets."),
        "SocketAttributes": ("class SocketAttributes:\n"
                             + quoted("The options that every socket has, as attributes.", 4)
                             + fields(sorted(of_all(), key=lambda row: row.name)))}


def pattern_classes() -> str:
    """What the constructors of the patterns take, for mqcore/__init__.pyi."""
    text = ("class SocketOptions(Options, total=False):\n"
            "    bind: Addresses\n    connect: Addresses\n\n")
    for pattern, cls in CLASSES.items():
        if rows := of_pattern(pattern):
            text += typed_dict(class_name(pattern), "SocketOptions", rows,
                               f"What the constructor of {cls.__name__} takes.")
    return text


def render_options() -> str:
    classes = option_classes()
    return (WRITTEN + '"""Types of the options: as keyword arguments, and as attributes of a '
            'socket."""\n\nimport ssl\nfrom collections.abc import Collection, Mapping\n'
            "from typing import Literal, TypedDict\n\nfrom mqcore.security import Security\n\n"
            + "".join(classes.values()).rstrip() + "\n")


# -- texts -----------------------------------------------------------------------------------------

def runtime(path: list[str]) -> object | None:
    """The object of these names below mqcore, or None."""
    first, *names = path
    if first in RUNNING:
        found: object = getattr(importlib.import_module(RUNNING[first]),
                                RENAMED.get(first, first), None)
    elif first.startswith("_"):
        homes = [getattr(importlib.import_module("mqcore"), home) for home in HOMES]
        return next((here for home in homes
                     if names and (here := getattr(home, names[0], None))), None)
    else:
        found = getattr(importlib.import_module("mqcore"), first, None)
    for name in names:
        found = inspect.getattr_static(found, name, None) or getattr(found, name, None)
    return found


def text_of(found: object, name: str) -> str:
    """The docstring without the signature that Cython puts in front."""
    if found is None or not (inspect.isclass(found) or inspect.isroutine(found)
                             or isinstance(found, (property, staticmethod))
                             or inspect.isgetsetdescriptor(found)):
        return ""
    if inspect.isclass(found) and "__doc__" not in vars(found):
        return ""
    text = inspect.getdoc(found) or ""
    first, _, rest = text.partition("\n")
    is_signature = re.fullmatch(rf"(\w+\.)*{name}(\(.*\)( ->.*)?|: \w+)", first)
    return rest.strip() if is_signature else text


def quoted(text: str, indent: int) -> str:
    """The text as a docstring, with its line end. "" for no text."""
    if not text:
        return ""
    space = " " * indent
    if "\n" not in text:
        text = "\n".join(textwrap.wrap(text, COLUMNS - indent - 3, break_long_words=False))
    lines = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').split("\n")
    if lines[-1].endswith('"'):
        lines[-1] += " "
    body = "\n".join((space + line).rstrip() for line in lines).lstrip()
    end = '"""' if "\n" not in body else f'\n{space}"""'
    return f'{space}"""{body}{end}\n'


# -- the public names ------------------------------------------------------------------------------

def constructor(pattern: str) -> str:
    own = OWN_ARGUMENTS.get(pattern)
    first = f"{own},\n                 " if own else ""
    return (f"    def __init__(self, *, {first}context: Context | None = None,\n"
            f"                 **options: Unpack[{class_name(pattern)}]) -> None: ...\n")


def overloads(method: bool) -> str:
    """socket(), for each pattern by its name."""
    indent, me = ("    ", "self, ") if method else ("", "")
    where = " The socket belongs to this context." if method else ""
    text = ""
    for pattern, cls in CLASSES.items():
        own = f", *, {OWN_ARGUMENTS[pattern]}" if pattern in OWN_ARGUMENTS else ""
        if not method:
            own += f",\n           {'' if own else '*, '}context: Context | None = None"
        text += (f'{indent}@overload\n{indent}def socket({me}pattern: Literal["{pattern}"]{own},\n'
                 f"{indent}           **options: Unpack[{class_name(pattern)}]) -> "
                 f"{cls.__name__}:\n")
        sentence = " ".join((inspect.getdoc(cls) or "").split()).split(". ")[0].rstrip(".")
        text += quoted(f"{sentence}.{where}", len(indent) + 4)
    return text + f"{indent}@overload\n{indent}def socket({me}pattern: str, **options: Any) -> " \
                  "Socket: ...\n"


def own_attributes(cls: str) -> str:
    """A pattern's options as attributes, and its constructor."""
    for pattern, known in CLASSES.items():
        if known.__name__ == cls:
            rows = of_pattern(pattern)
            text = fields(rows) if rows else ""
            return text + (constructor(pattern) if rows or pattern in OWN_ARGUMENTS else "")
    return ""


def insertions(source: str) -> Iterator[tuple[int, int, str]]:
    """(line, column, text): where the signatures get a text. The place is that of the `...` of a
    body, or the first line of a body; counted from 1 and 0."""
    def visit(node: ast.AST, path: list[str], indent: int) -> Iterator[tuple[int, int, str]]:
        for item in ast.iter_child_nodes(node):
            if not isinstance(item, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            names = [*path, item.name]
            text = quoted(text_of(runtime(names), item.name), indent + 4)
            if ast.get_docstring(item) is not None:
                text = ""
            if isinstance(item, ast.ClassDef):
                text += own_attributes(item.name) if not path else ""
                yield item.body[0].lineno, item.body[0].col_offset, text
                yield from visit(item, names, indent + 4)
            elif not item.name.startswith("__") and text:
                yield item.body[0].lineno, item.body[0].col_offset, text
    yield from visit(ast.parse(source), [], 0)


def render_public() -> str:
    source = (ROOT / SIGNATURES).read_text()
    names = ", ".join(sorted(option_classes()))
    imported = "\n".join(textwrap.wrap(names, COLUMNS - 4))
    source = source.replace("# the names of mqcore._options\n", "from mqcore._options import (\n"
                            + textwrap.indent(imported, "    ") + ",\n)\n")
    source = source.replace("# options of patterns\n", pattern_classes().rstrip() + "\n")
    source = source.replace("    # overloads of Context.socket\n", overloads(method=True))
    source = source.replace("# overloads of socket\n", overloads(method=False))
    _, _, source = source.partition('writes mqcore/__init__.pyi."""\n')
    lines = source.splitlines(keepends=True)
    for line, column, text in sorted(insertions(source), reverse=True):
        here = lines[line - 1]
        if not text:
            continue
        if here[column:].startswith("..."):     # the text is the body
            before, after = here[:column].rstrip(), here[column + 3:].strip()
            lines[line - 1] = (before + (f"  {after}" if after else "") + "\n" if before else "") \
                + text
        else:
            while lines[line - 2].strip().startswith("@"):      # a decorated method
                line -= 1
            lines.insert(line - 1, text)
    return (WRITTEN + '"""Types and texts of the public names."""\n' + "".join(lines))


FILES = {PUBLIC: render_public, OPTIONS: render_options}


def main() -> None:
    stale = []
    for name, render in FILES.items():
        path, text = ROOT / name, render()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv[1:]:
                path.write_text(text)
    print("\n".join(stale) or "nothing has changed")
    sys.exit("--check" in sys.argv[1:] and bool(stale))


if __name__ == "__main__":
    main()
