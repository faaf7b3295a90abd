"""Messages as JSON: the envelope. A body is `text`, `base64` or `json`, exactly one of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mqcore.http.problem import Problem

TYPE = "application/vnd.mqcore+json"
Name = Annotated[str, msgspec.Meta(max_length=1024)]


class Envelope(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message that a client sends. `topic` is for `pub`, `key` and `headers` for a journal, and
    so is a `text` that is null, a tombstone."""

    text: str | msgspec.UnsetType | None = msgspec.UNSET
    base64: bytes | None = None
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    topic: Name | None = None
    key: Name | None = None
    headers: Annotated[dict[Name, Name], msgspec.Meta(max_length=64)] = {}

    @property
    def value(self) -> bytes | None:
        """None: a tombstone."""
        if self.base64 is not None:
            return self.base64
        if self.json is not msgspec.UNSET:
            return bytes(self.json)
        return self.text.encode() if isinstance(self.text, str) else None

    @property
    def body(self) -> bytes:
        """For a socket. Problem 400: it has no null value."""
        if (value := self.value) is None:
            raise Problem(400, "envelope", "only a journal has messages without a value",
                          'send {"text": ""} for an empty message')
        return value


def decode(data: bytes | str) -> Envelope:
    """The envelope in a body. Problem 400 if it is none."""
    try:
        found = msgspec.json.decode(data, type=Envelope)
        given = (found.text is not msgspec.UNSET) + (found.base64 is not None) \
            + (found.json is not msgspec.UNSET)
        if given != 1:
            raise msgspec.ValidationError(f"has {given} bodies")
        if isinstance(found.text, str):
            found.text.encode()     # lone surrogates
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Problem(400, "envelope", f"the body is no envelope: {error}",
                      'send {"text": ...}, {"base64": ...} or {"json": ...}, and only fields that '
                      'the guide names; or send a raw body with another Content-Type') from None
    return found


def encode(body: bytes | None, id: str = "", **more: Any) -> bytes:
    """A message for a client: `text` if the body is UTF-8, else `base64`. A tombstone of a journal
    has `text` null."""
    said: dict[str, Any] = {"id": id} if id else {}
    said.update({name: value for name, value in more.items()
                 if value or name in ("key", "time")})      # an empty key is one; 0 is 1970
    try:
        said["text"] = None if body is None else body.decode()
    except UnicodeDecodeError:
        said["base64"] = body
    return msgspec.json.encode(said)
