"""Refusals as the client sees them: problem details in JSON (RFC 9457).

`detail` says what happened and why, `hint` what to do. `type` is a stable name for programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

import msgspec

Header = tuple[bytes, bytes]
TYPE = b"application/problem+json"


class Problem(Exception):
    """A request that the gateway refuses, with the HTTP status of the answer."""

    def __init__(self, status: int, name: str, detail: str, hint: str = "",
                 headers: Iterable[Header] = ()) -> None:
        super().__init__(detail)
        self.status, self.name, self.detail, self.hint = status, name, detail, hint
        self.headers = list(headers)

    def body(self) -> bytes:
        """The JSON document."""
        said = {"type": f"urn:mqcore:http:{self.name}", "title": HTTPStatus(self.status).phrase,
                "status": self.status, "detail": self.detail}
        if self.hint:
            said["hint"] = self.hint
        return msgspec.json.encode(said)


def retry_after(seconds: int) -> list[Header]:
    """The header of answers that may be different a little later."""
    return [(b"retry-after", b"%d" % seconds)]
