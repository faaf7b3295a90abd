"""Foreign libraries that run alone have three tries; a test in which ours runs has one."""

import types

import alone
import pytest


def item(function, **params):
    return types.SimpleNamespace(
        callspec=types.SimpleNamespace(params=params), obj=function, nodeid="the test",
        funcargs={}, _fixtureinfo=types.SimpleNamespace(argnames=()), user_properties=[])


@pytest.mark.parametrize(("params", "answer"), [
    ({"n": "real"}, True), ({"sides": "real", "kind": 3}, True), ({"n": "ours"}, False),
    ({"sides": "ours-real"}, False), ({"client": "ours", "kernel": "real"}, False), ({}, False)])
def test_who_runs_alone(params, answer):
    assert alone.runs_alone(item(None, **params)) is answer


def fails(times):
    """A function that raises so many times; `calls` counts."""
    def function():
        function.calls += 1
        if function.calls <= times:
            raise OSError("the race")
    function.calls = 0
    return function


def test_three_tries():
    twice = item(fails(2))
    alone.call(twice)
    assert [line for _, line in twice.user_properties] == ["the test: OSError: the race"] * 2


def test_no_fourth_try():
    always = item(fails(9))
    with pytest.raises(OSError, match="the race"):
        alone.call(always)
    assert always.obj.calls == alone.TRIES
