"""What pyzmq has and mqcore.zmq has not, with the reason: the page of differences (README.md) and
the test of names are both held against these tables."""

from __future__ import annotations

NO_LIBRARY = "there is no libzmq behind"

#: modules of pyzmq: why they are missing
MODULES: dict[str, str] = {
    "backend.cffi": NO_LIBRARY,
    "backend.cython": NO_LIBRARY,
    "tests": "they are pyzmq's own",
}
#: public names of the other modules
NAMES: dict[str, str] = {
    f"utils.garbage.{name}": "a buffer's last user releases it; there is no thread for that"
    for name in ("GarbageCollectorThread", "GarbageCollector.context", "GarbageCollector.is_alive",
                 "GarbageCollector.start", "GarbageCollector.stop", "GarbageCollector.url")}


def reason(name: str) -> str | None:
    """Why this name, with dots from `zmq` on, is missing. None if pyzmq does not have it either."""
    name = name.removeprefix("green.")  # has the same names once more
    return MODULES.get(absent(name)) or NAMES.get(name)


def absent(name: str) -> str:
    """The module that is missing, if this is one or in one; "": none is."""
    return next((module for module in MODULES if f"{name}.".startswith(f"{module}.")), "")


def missing(name: str) -> str:
    """The text of an AttributeError or ImportError."""
    why = reason(name)
    if why is None:
        return f"module 'mqcore.zmq' has no attribute {name!r}"
    return f"zmq.{name} is missing in mqcore.zmq: {why}"
