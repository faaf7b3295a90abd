"""The warning for a call that blocks the event loop of its own thread.

`SocketHandle.wait` calls `warn` each time a call is about to sleep in a thread in which asyncio or
trio runs. The hot path never comes here: a call that need not wait returns earlier, and with no
loop in the process the look costs two dictionary lookups.
"""

from __future__ import annotations

import ast
import linecache
import sys
import warnings
from types import CodeType, FrameType
from typing import Any

from mqcore.binding.sleep import running
from mqcore.errors import BlockingCallWarning

SITES = 4096  # call sites remembered; further ones do not warn
#: callers that answer for their own waits: other libraries' interfaces, and closing
_OWN = ("mqcore.zmq", "mqcore.nng", "mqcore.control")
_NOT_OWN = "mqcore.control.endpoint"  # what it has is for programs to call
#: what is called by no name
_LOOPS = {"__next__": ("this `for` over a socket", "use `async for` instead")}

_seen: set[tuple[CodeType, int]] = set()


def check(what: Any) -> None:
    """For calls that sleep elsewhere: warn, if an event loop runs in this thread."""
    if running():
        warn(what)


def warn(sock: Any) -> None:
    """Warn once for each place outside of mqcore that calls."""
    frame: FrameType | None = sys._getframe(1)
    inside = ""  # the outermost function of mqcore
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module.partition(".")[0] != "mqcore":
            break
        if module.startswith(_OWN) and module != _NOT_OWN:
            return
        inside = frame.f_code.co_name
        frame = frame.f_back
    if frame is None or _in_notebook(frame):
        return
    site = frame.f_code, frame.f_lasti
    if site in _seen or len(_seen) >= SITES:
        return
    _seen.add(site)
    call, instead = _names(sock, inside or _called(frame))
    warnings.warn_explicit(
        f"{call} blocks the event loop that runs in this thread, and all its tasks; {instead}",
        BlockingCallWarning, frame.f_code.co_filename, frame.f_lineno,
        module=frame.f_globals.get("__name__"), source=None)


def _names(sock: Any, name: str) -> tuple[str, str]:
    """The call, and what to write in its stead."""
    if name in _LOOPS:
        return _LOOPS[name]
    if name and (name == "poll" or hasattr(sock, f"a{name}")):
        return f"{name}()", f"`await` its twin a{name}() instead"
    return "this call", "`await` its twin instead, whose name begins with an a, as arecv()"


def _called(frame: FrameType) -> str:
    """The name of the method that this frame calls now. Calls into extensions have no frame of
    their own, so it is read from the source; "" without one."""
    positions = list(frame.f_code.co_positions())
    start, end, left, right = positions[frame.f_lasti // 2]
    if start is None or end is None or left is None or right is None:
        return ""
    lines = [linecache.getline(frame.f_code.co_filename, n, frame.f_globals).encode()
             for n in range(start, end + 1)]
    if not all(lines):
        return ""
    lines[-1] = lines[-1][:right]
    lines[0] = lines[0][left:]
    try:
        node = ast.parse(b"(" + b"".join(lines) + b"\n)", mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    call = node.func if isinstance(node, ast.Call) else node
    return call.attr if isinstance(call, ast.Attribute) else ""


def _in_notebook(frame: FrameType) -> bool:
    """A cell of a Jupyter notebook runs on the kernel's own loop, and is expected to block it."""
    if "ipykernel" not in sys.modules:
        return False
    at: FrameType | None = frame
    while at is not None:
        back = at.f_back
        # the module of a program has this name, too, but IPython does not call it
        if (at.f_code.co_name == "<module>" and at.f_globals.get("__name__") == "__main__"
                and back is not None
                and (back.f_globals.get("__name__") or "").startswith("IPython.")):
            return True
        at = back
    return False
