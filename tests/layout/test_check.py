"""A machine that lacks something gets one plain sentence that says what to install."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check", TOOLS / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_sentence(text):
    assert "\n" not in text and text.endswith(".") and len(text) < 400
    return text


def test_this_machine_can(check):
    assert check.problem() is None


def test_an_old_python(check, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    text = one_sentence(check.problem())
    assert "Python 3.11 or newer" in text and "is Python 3.9" in text and "PYTHON=" in text


def test_its_syntax_is_old():
    """The sentence must be reached: an old interpreter parses the whole file first."""
    ast.parse((TOOLS / "check.py").read_text(), feature_version=(3, 4))


def test_no_headers(check, monkeypatch, tmp_path):
    monkeypatch.setattr(check.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    text = one_sentence(check.problem())
    assert "Python.h" in text and f"python{check.version()}-dev" in text


def test_no_compiler(check, monkeypatch):
    monkeypatch.setattr(check, "compiler", lambda: iter([["no-such-compiler"]]))
    assert "apt-get install g++" in one_sentence(check.problem())


def test_a_compiler_that_is_too_old(check, monkeypatch, tmp_path):
    old = tmp_path / "g++-4"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ]\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    text = one_sentence(check.problem())
    assert "g++-4" in text and "GCC 10 or newer" in text


def test_make_says_it_before_anything_is_built(tmp_path):
    """As a user meets it: the sentence, one line of make's own, and nothing made."""
    answer = subprocess.run(
        [shutil.which("make"), "--no-print-directory", "build", "PYTHON=tools/python",
         f"VENV={tmp_path / 'venv'}"],
        cwd=copy_of_tools(tmp_path), capture_output=True, text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")})
    assert answer.returncode == 2 and answer.stdout == ""
    sentence, make = answer.stderr.splitlines()
    assert "needs Python 3.11 or newer" in one_sentence(sentence) and make.startswith("make:")
    assert not (tmp_path / "venv").exists()


def copy_of_tools(folder):
    """The Makefile and tools/ with an interpreter that claims to be old."""
    shutil.copytree(TOOLS, folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOOLS.parent / "Makefile", folder)
    liar = folder / "tools" / "python"
    liar.write_text(f"""#!{sys.executable}
import runpy, sys
sys.version_info = (3, 8, 0, "final", 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
""")
    liar.chmod(0o755)
    return folder
