"""Checks of what callers give: see arguments.pxd."""

from libc.stdint cimport INT64_MAX, int64_t

import sys

from mqcore.errors import UsageError

cdef dict MODULES = sys.modules
# what to do about a message that a pattern cannot send
UNSENDABLE = {
    "router": "a routing id comes first: send_to(id, ...)",
    "stream": "a routing id comes first: send_to(id, ...)",
    "server": "send_to(peer, body): one part, and whom it is for",
    "peer": "send_to(peer, body): one part, and whom it is for",
    "dgram": 'two parts: an address like b"192.0.2.1:5555", or b"[::1]:5555", and a body',
}


cpdef double seconds_of(object timeout, str name) except -1:
    """A timeout= that is given and not None, or another time that has this name."""
    cdef double seconds
    if isinstance(timeout, (str, bytes, bool)):
        raise UsageError(f"{name} must be seconds or None, not {timeout!r}")
    try:
        seconds = timeout
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} must be seconds or None, not {timeout!r}") from None
    if seconds < 0 or seconds != seconds:
        raise UsageError(f"{name} must not be negative, got {timeout!r}",
                         hint="0 does not wait, None waits for ever")
    return seconds


cpdef object several(str what, object given, bint ordered):
    """Refuse a single buffer, and an object that is not iterable or has no order."""
    if isinstance(given, (bytes, bytearray, memoryview, str)):
        raise UsageError(what, hint="use send() for one")
    if (not hasattr(given, "__iter__") or isinstance(given, dict)
            or ordered and isinstance(given, (set, frozenset))):
        raise UsageError(f"{what}, not {type(given).__name__}", hint="give a list")
    return given


cdef object writable(object buffer):
    """A view of the buffer of recv_into()."""
    try:
        view = memoryview(buffer)
    except TypeError:
        view = None
    if view is None or view.readonly or not view.c_contiguous:
        raise UsageError(
            "recv_into() takes a writable buffer, not " + (
                type(buffer).__name__ if view is None else
                "one that can only be read" if view.readonly else "one with gaps"),
            hint="give a bytearray, or a C-contiguous array")
    return view


cdef int64_t at_least_one(str name, most) except -1:
    if isinstance(most, bool) or not hasattr(most, "__index__"):
        raise UsageError(f"{name} must be a whole number, not {most!r}")
    if not 1 <= most <= INT64_MAX:
        raise UsageError(f"{name} must be between 1 and {INT64_MAX}, got {most}")
    return most


cdef bint loop_runs() except -1:
    """Whether asyncio or trio runs in this thread. A module that is not imported does not run."""
    cdef object module = MODULES.get("asyncio")
    cdef object look
    if module is not None:
        look = getattr(module, "_get_running_loop", None)   # None: it is being imported now
        if look is not None and look() is not None:
            return True
    module = MODULES.get("trio")
    if module is None:
        return False
    look = getattr(module, "lowlevel", None)
    return look is not None and look.in_trio_run()
