"""What callers may pass: each check returns the argument in the form that the calls work with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from mqcore.cluster import frames
from mqcore.errors import UsageError

LONGEST = 1e9       # seconds, of a time-out; a frame can carry little more
TEXTS = 1024        # addresses in one argument


def view_of(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data)
    except ValueError:
        raise UsageError("the memoryview has been released",
                         hint="release it once the call has returned") from None


def body_of(data: Any) -> bytes:
    if type(data) is bytes:
        body = data
    elif isinstance(data, bytes | bytearray | memoryview):
        body = bytes(view_of(data))
    else:
        raise UsageError(f"a body must be bytes, not {type(data).__name__}",
                         hint='encode text, such as "text".encode()')
    if len(body) > frames.BODY:
        raise UsageError(f"a body of {len(body)} bytes, {frames.BODY} is the limit",
                         hint="use a tunnel")
    return body


def exact(text: str) -> str:
    """Without the class derived from str that it may be of, such as an enum's: a frame carries no
    other ones."""
    return text if type(text) is str else str.__str__(text)


def encodes(text: str) -> bool:
    """Whether UTF-8 has bytes for all of it: a frame cannot carry lone surrogates."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def readable(text: str) -> str:
    """For a person: what UTF-8 has no bytes for, such as a part of a file's name, is an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def name_of(service: Any) -> str:
    if not isinstance(service, str) or not 0 < len(service) <= frames.NAME or not encodes(service):
        raise UsageError(f"a service's name is a text of 1 to {frames.NAME} characters, not "
                         f"{service!r:.80}")
    return service if type(service) is str else exact(service)


def seconds_of(timeout: Any) -> float:
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 <= timeout <= LONGEST:       # which NaN is not either
        raise UsageError(f"a time-out of {timeout!r:.80}",
                         hint=f"it is 0 to {LONGEST:g} seconds, or None for ever")
    return float(timeout)


def key_of(key: Any) -> bytes | None:
    """What requests with the same key have in common."""
    if key is None or isinstance(key, bytes):       # it is hashed, and not sent
        return key
    if not isinstance(key, str):
        raise UsageError(f"key= is bytes, a str or None, not {type(key).__name__}",
                         hint="such as key=str(number)")
    return key.encode("utf-8", "surrogatepass")


def hedge_of(hedge: Any) -> float | bool | None:
    return hedge if hedge is None or isinstance(hedge, bool) else seconds_of(hedge)


def limit_of(limit: Any) -> float | None:
    return None if limit is None else seconds_of(limit)


def ends_at(timeout: Any) -> float | None:
    """The time.monotonic() at which a wait of that many seconds ends."""
    return None if timeout is None else time.monotonic() + seconds_of(timeout)


def count_of(number: Any, what: str, least: int = 0) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise UsageError(f"{what} is a whole number of {least} or more, not {number!r:.80}")
    return number


def text_of(text: Any, what: str) -> str:
    if not isinstance(text, str) or len(text) > frames.NAME or not encodes(text):
        raise UsageError(f"{what}= is a text of up to {frames.NAME} characters, not {text!r:.80}")
    return exact(text)


def headers_of(given: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """A member that got others would have to end the link, and with it all that is under way."""
    headers = dict(given) if given else {}
    if len(headers) > frames.HEADERS:
        raise UsageError(f"{len(headers)} headers; {frames.HEADERS} is the limit",
                         hint="put more into the body")
    for name, value in headers.items():
        if not text_of(name, "the name of a header"):
            raise UsageError("a header without a name")
        if not isinstance(value, bytes) or len(value) > frames.HEADER:
            raise UsageError(f"the value of the header {name!r} is no bytes, or more than "
                             f"{frames.HEADER} of them")
    return {exact(name): bytes(value) for name, value in headers.items()}


def weight_of(weight: Any) -> float:
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not weight >= 0:
        raise UsageError(f"weight= is a number of 0 or more, not {weight!r:.80}")
    return float(weight)


def flag_of(flag: Any, what: str) -> bool:
    if not isinstance(flag, bool):
        raise UsageError(f"{what}= is True or False, not {flag!r:.80}")
    return flag


def path_of(path: Any, what: str) -> str | None:
    if path is None:
        return None
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) \
            or not os.fspath(path):
        raise UsageError(f"{what}= is the path of a file, not {path!r:.80}")
    return os.fspath(path)


def texts_of(texts: Any, what: str) -> tuple[str, ...]:
    """One text, or several."""
    found = (texts,) if isinstance(texts, str) else \
        tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, bytes) else None
    if found is None or len(found) > TEXTS or not all(
            isinstance(text, str) and text for text in found):
        raise UsageError(f"{what}= is a text or up to {TEXTS} of them, and none is empty: "
                         f"{texts!r:.80}", hint=f'such as {what}=["tcp://127.0.0.1:7400"]')
    return tuple(map(exact, found))


def said_by(error: BaseException | str) -> str:
    """A text that a frame can carry: what UTF-8 has no bytes for (of a file name, say) is `?`."""
    try:
        text = str(error)
    except Exception:
        text = f"{type(error).__name__}, which cannot say what is wrong"
    return text.encode("utf-8", "replace").decode()[:2000]
