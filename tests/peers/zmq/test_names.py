"""Every public name of pyzmq's is here, or in the table of differences with the reason."""

import enum
import importlib
import importlib.util
import inspect
import pkgutil
from pathlib import Path

import pytest

import mqcore.zmq as ours
from mqcore.zmq import borrowed, differences, options

real = pytest.importorskip("zmq")

MODULES = ("asyncio", "auth", "auth.asyncio", "auth.base", "auth.certs", "auth.thread", "backend",
           "backend.select", "constants", "decorators", "devices", "devices.basedevice",
           "devices.monitoredqueue", "devices.monitoredqueuedevice", "devices.proxydevice",
           "devices.proxysteerabledevice", "error", "eventloop", "eventloop.future",
           "eventloop.ioloop", "eventloop.zmqstream", "green", "green.device",
           "green.eventloop", "green.eventloop.zmqstream", "green.poll",
           "log.handlers", "ssh", "ssh.forward", "ssh.tunnel", "sugar", "sugar.attrsettr",
           "sugar.context", "sugar.frame", "sugar.poll", "sugar.socket", "sugar.stopwatch",
           "sugar.tracker", "sugar.version", "utils", "utils.garbage", "utils.interop",
           "utils.jsonapi", "utils.monitor", "utils.strtypes", "utils.win32", "utils.z85")
IMPORTS = ("annotations", "Enum", "IntEnum", "IntFlag", "TYPE_CHECKING", "contextmanager", "os",
           "sys")
ROOT = Path(ours.__file__).parent


def public(thing, module=None):
    """Its names; of a module those it says it has, or that are its own."""
    listed = getattr(thing, "__all__", None) if module else None
    if listed is not None:
        return set(listed)
    names = {name for name in dir(thing) if not name.startswith("_")}
    if module:
        names = {name for name in names if not inspect.ismodule(getattr(thing, name))
                 and getattr(getattr(thing, name), "__module__", module) == module}
    return names


def missing():
    found = []
    for name in ("", *MODULES):
        theirs = importlib.import_module(f"zmq.{name}".strip("."))
        mine = importlib.import_module(f"mqcore.zmq.{name}".strip("."))
        prefix = f"{name}." if name else ""
        for word in sorted(public(theirs, None if not name else theirs.__name__)):
            if word in IMPORTS or inspect.ismodule(getattr(theirs, word)):
                continue  # modules have a test of their own
            try:
                value = getattr(mine, word)
            except (AttributeError, ImportError):
                found.append(prefix + word)
                continue
            if inspect.isclass(getattr(theirs, word)):
                found += [f"{prefix}{word}.{at}" for at in sorted(public(getattr(theirs, word)))
                          if not hasattr(value, at)
                          and not any(at in cls.__dict__.get("__annotations__", ())
                                      for cls in value.__mro__)]
    return found


OLD = pytest.mark.filterwarnings("ignore:zmq.eventloop.ioloop:DeprecationWarning")


@OLD
def test_every_name_is_here_or_in_the_table():
    assert [name for name in missing() if differences.reason(name) is None] == []


@OLD
def test_every_module_is_here_or_in_the_table():
    for module in pkgutil.walk_packages(real.__path__, "zmq.", onerror=lambda name: None):
        name = module.name.removeprefix("zmq.")
        if "._" in module.name or differences.reason(name) is not None:
            continue
        assert importlib.util.find_spec(f"mqcore.zmq.{name}") is not None, name


def test_the_table_says_nothing_stale():
    gone = missing()
    for name in differences.NAMES:
        assert name in gone, f"{name} is here"
    for name in differences.MODULES:
        assert importlib.util.find_spec(f"zmq.{name}") is not None
        with pytest.raises(ImportError, match=f"zmq.{name}|No module"):
            importlib.import_module(f"mqcore.zmq.{name}")


def test_constants_have_the_same_values():
    from zmq import constants as theirs

    for name in theirs.__all__:
        value, mine = getattr(theirs, name), getattr(ours.constants, name, None)
        if isinstance(value, type):
            if value.__module__ == "zmq.constants":
                assert {k: int(v) for k, v in value.__members__.items()} == \
                       {k: int(v) for k, v in mine.__members__.items()}
                assert mine.__bases__ == value.__bases__
        else:
            assert (int(value), str(value)) == (int(mine), str(mine)), name
            assert isinstance(mine, enum.Enum)


#: what loops leave behind, and what is said of `missing()`
LEFT_OVER = ("annotations", "submod", "first", "second")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_name_that_a_module_holds():
    """Also what it has imported itself: programs use zmq.error.EINTR."""
    absent = []
    for name in ("", *MODULES, "auth.ioloop", "curve_keygen", "green.core", "log",
                 "green.eventloop.ioloop"):
        theirs = importlib.import_module(f"zmq.{name}".strip("."))
        mine = importlib.import_module(f"mqcore.zmq.{name}".strip("."))
        for word in dir(theirs):
            if (word.startswith("_") or word in LEFT_OVER
                    or differences.reason(f"{name}.{word}".strip("."))):
                continue
            if not hasattr(mine, word):
                absent.append(f"{name}.{word}")
    assert not absent


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_lent_is_what_pyzmq_holds():
    for module, names in borrowed.LENT.items():
        mine = importlib.import_module(module)
        for name in names.split():
            assert hasattr(mine, name), (module, name)
    assert ours.error.EINTR == real.error.EINTR
    assert ours.sugar.socket.DEFAULT_PROTOCOL == real.sugar.socket.DEFAULT_PROTOCOL
    with pytest.raises(AttributeError, match=r"mqcore\.zmq\.error.* no attribute 'nothing'"):
        ours.error.nothing  # noqa: B018


def test_signatures():
    """What can be called with names can be called so here."""
    for cls in ("Socket", "Context", "Poller", "MessageTracker"):
        for name in public(getattr(real, cls)):
            theirs, mine = (getattr(getattr(module, cls), name, None) for module in (real, ours))
            if not callable(theirs) or name in ("get", "set", "setsockopt", "getsockopt"):
                continue
            names = [p.name for p in inspect.signature(theirs).parameters.values()
                     if p.kind != p.VAR_KEYWORD]
            assert [p.name for p in inspect.signature(mine).parameters.values()
                    if p.kind != p.VAR_KEYWORD][:len(names)] == names, f"{cls}.{name}"


def test_exceptions():
    for name in real.error.__all__:
        theirs, mine = getattr(real, name), getattr(ours, name)
        assert {cls.__name__ for cls in theirs.__mro__} <= {cls.__name__ for cls in mine.__mro__}
    for number in range(1, 134):
        assert real.strerror(number) == ours.strerror(number)
    for number in real.constants.Errno:
        assert real.strerror(number) == ours.strerror(number)


def test_every_option_has_a_row():
    assert set(options.ROWS) == {option for option in ours.SocketOption
                                 if option != ours.SocketOption.BLOCKY}


def test_the_page_lists_what_differs():
    page = (ROOT / "README.md").read_text()
    for name in (*differences.MODULES, *differences.NAMES):
        assert f"`zmq.{name}`" in page or f"`{name}`" in page, name
    for option, row in options.ROWS.items():
        if row.why or row.hint:
            name = ours.SocketOption(option).name
            assert name in page or name.startswith("NORM_"), name


def test_nothing_imports_pyzmq():
    import ast

    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert all(a.name.partition(".")[0] != "zmq" for a in node.names), path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] != "zmq" and not node.level, path
