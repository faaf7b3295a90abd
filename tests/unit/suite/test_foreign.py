"""Tests in which a foreign library runs alone are found by their parameters, and left out."""

import types

import foreign
import pytest


@pytest.mark.parametrize(("params", "answer"), [
    ({"n": "real"}, True), ({"sides": "real", "kind": 3}, True), ({"n": "ours"}, False),
    ({"sides": "ours-real"}, False), ({"client": "ours", "kernel": "real"}, False), ({}, False)])
def test_who_runs_alone(params, answer):
    item = types.SimpleNamespace(callspec=types.SimpleNamespace(params=params))
    assert foreign.runs_alone(item) is answer
