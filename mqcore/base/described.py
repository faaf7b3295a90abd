"""Words of others, as they may be shown: of a program's or a plug-in's errors, and of peers."""

from __future__ import annotations

import sys
from contextlib import suppress


def described(error: BaseException) -> str:
    """Its type and text, as "KeyError: 'name'", in a form that any decoder takes. A __str__ that
    fails must not hide the error."""
    try:
        text = str(error)
    except Exception as second:
        text = f"its text is unknown, since __str__() raised {type(second).__name__}"
    name = type(error).__name__
    found = f"{name}: {text}" if text else name
    return found.encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """On one line, without control characters: for text of which a peer chooses a part."""
    return text if text.isprintable() else "".join(
        char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def report() -> None:
    """Print the exception that is handled now, as Python prints one that ends a program. For
    threads that go on, where a handler of `logging` has raised SystemExit, say. Raises nothing."""
    with suppress(BaseException):       # a program's own hook may exit
        sys.excepthook(*sys.exc_info())
