"""Everything that pynng has by a public name is here, or is in the table with the reason."""

import inspect
import re

import pytest

import mqcore.nng as ours

real = pytest.importorskip("pynng")

NOT_THERE = {
    "ffi": "the door to nng's C library, which is not behind this",
    "sockaddr.pynng": "an import",
    "exceptions.ffi": "an import",
    "exceptions.nng": "an import",
    "options.pynng": "an import",
    "tls.pynng": "an import",
    "nng.ffi": "an import",
    "nng.pynng": "an import",
    "nng.atexit": "an import",
    "nng.threading": "an import",
    "nng.logging": "an import",
    "nng.logger": "the log is called mqcore.nng here",
    "nng.check_err": "an import",
    "nng.to_char": "text for C",
    "nng.NotImplementedOption": "how options reach nng's C library: one class does it here, Option",
    "nng.BooleanOption": "as above",
    "nng.IntOption": "as above",
    "nng.MsOption": "as above",
    "nng.PointerOption": "as above",
    "nng.SizeOption": "as above",
    "nng.SockAddrOption": "as above",
    "nng.StringOption": "as above",
    "sockaddr.ZTAddr": "ZeroTier, a transport that neither Debian's nng nor pynng's can use",
}
MODULES = ("exceptions", "nng", "options", "sockaddr", "tls")


def names(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def missing():
    """Dotted names of pynng's that we lack."""
    found = []
    places = [("", real, ours)]
    places += [(f"{name}.", getattr(real, name), getattr(ours, name)) for name in MODULES]
    for prefix, theirs, mine in places:
        for name in sorted(names(theirs)):
            if not hasattr(mine, name):
                found.append(prefix + name)
                continue
            value = getattr(theirs, name)
            if inspect.isclass(value):
                found += [f"{prefix}{name}.{at}" for at in sorted(names(value))
                          if not hasattr(getattr(mine, name), at)]
    return found


def test_every_name_is_here_or_in_the_table():
    assert [name for name in missing() if name not in NOT_THERE] == []


def test_the_table_is_true():
    assert sorted(set(NOT_THERE) - set(missing())) == []


def test_constants_of_the_library_have_the_same_values():
    numbers = {name: getattr(real.lib, name) for name in dir(real.lib)
               if name.startswith("NNG_") and isinstance(getattr(real.lib, name), int)}
    assert len(numbers) > 70
    assert {name: getattr(ours.lib, name, None) for name in numbers} == numbers


def test_functions_that_open_sockets_are_here():
    openers = [name for name in dir(real.lib) if re.search(r"_open(_raw|_poly)?$", name)
               and name not in ("nng_ctx_open", "nng_udp_open")]
    assert len(openers) > 20
    assert [name for name in openers if not hasattr(ours.lib, name)] == []


CLASSES = [name for name in sorted(names(real)) if inspect.isclass(getattr(real, name))]


def keywords(kind):
    """Of the constructor, those behind **kwargs too."""
    found = {}
    for base in reversed(kind.__mro__):
        if "__init__" in vars(base) and base is not object and base is not Exception:
            found.update(inspect.signature(base.__init__).parameters)
    return {name for name, one in found.items() if one.kind is not one.VAR_KEYWORD} - {"self"}


OF_THE_LIBRARY = {("Context", "socket"), ("Dialer", "dialer"), ("Dialer", "socket"),
                  ("Listener", "listener"), ("Listener", "socket"), ("Pipe", "lib_pipe"),
                  ("Pipe", "socket")}       # made by sockets, never by programs


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_and_methods_take_the_same(name):
    theirs, mine = getattr(real, name), getattr(ours, name)
    lacking = {(name, word) for word in keywords(theirs) - keywords(mine)}
    assert lacking <= OF_THE_LIBRARY
    for method in sorted(names(theirs)):
        call = inspect.getattr_static(theirs, method)
        if inspect.isfunction(call):
            wanted = list(inspect.signature(call).parameters.values())
            got = list(inspect.signature(getattr(mine, method)).parameters.values())
            assert [(p.name, p.default) for p in got] == [(p.name, p.default) for p in wanted], \
                method
            assert inspect.iscoroutinefunction(getattr(mine, method)) == \
                inspect.iscoroutinefunction(call), method


def test_exceptions_are_of_the_same_kind_and_number():
    for number, kind in real.exceptions.EXCEPTION_MAP.items():
        assert ours.exceptions.EXCEPTION_MAP[number].__name__ == kind.__name__
    for name in CLASSES:
        theirs = getattr(real, name)
        if issubclass(theirs, Exception):
            assert [one.__name__ for one in theirs.__mro__] == \
                [one.__name__ for one in getattr(ours, name).__mro__]


@pytest.mark.parametrize("number", [*range(31), 1000, 31, 77, 0x10000002])
def test_check_err(number):
    def outcome(module):
        try:
            return module.check_err(number)
        except module.NNGException as error:
            return type(error).__name__, error.errno

    assert outcome(ours) == outcome(real)
