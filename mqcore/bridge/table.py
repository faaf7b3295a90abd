"""Header tables: how headers are renamed and removed on their way through a bridge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mqcore.bridge.message import KEY, REDELIVERED, Message
from mqcore.bridge.spi import Side
from mqcore.errors import OptionError


class Table:
    """rules: {"old": "new"} renames a header, {"old": None} removes it, {"*": None} removes all
    that are not named. Names are compared without regard to case."""

    def __init__(self, rules: Mapping[str, str | None] | None = None) -> None:
        self._rules: dict[str, str | None] = {}
        for old, new in (rules or {}).items():
            if not isinstance(old, str) or not (new is None or isinstance(new, str)) or not old:
                raise OptionError(f"headers={{{old!r}: {new!r}}}",
                                  hint='a rule is {"old": "new"} or {"old": None}')
            if old == "*" and new is not None:
                raise OptionError(f'headers={{"*": {new!r}}}', hint='"*" can only be removed')
            self._rules[old.lower()] = new
        self._others = "*" not in self._rules

    def __bool__(self) -> bool:
        return bool(self._rules)

    def applied(self, headers: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        found = []
        for name, value in headers:
            new = self._rules.get(name.lower(), name if self._others else None)
            if new is not None:
                found.append((new, value))
        return found

    def translate(self, message: Message, source: Side, target: Side) -> None:
        """Move the key between its header and its field, apply the rules, flag redelivery."""
        if not message.headers and message.key is None and not message.redelivered:
            return
        if not source.keyed and message.key is None:
            message.key = message.header(KEY)
        headers = [row for row in message.headers if row[0].lower() not in (KEY, REDELIVERED)]
        if self._rules:
            headers = self.applied(headers)
        if target.headed:
            if not target.keyed and message.key is not None:
                headers.append((KEY, message.key))
            if message.redelivered:
                headers.append((REDELIVERED, b"1"))
        message.headers = headers
