"""mqcore on a Python without the global interpreter lock: importing it leaves the lock off.

These tests need such an interpreter; `make test-free-threaded` builds one and runs them, and with
them all tests of what threads share.
"""

import os
import subprocess
import sys
import sysconfig

import pytest
from sources import ROOT, package_files

FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
pytestmark = pytest.mark.skipif(not FREE, reason="this Python has a GIL")
# An import of a module that does not declare itself compatible takes the lock back for the whole
# process, and warns; with -W error the import fails.
PROGRAM = """
import importlib, sys
assert not sys._is_gil_enabled(), "it is on from the beginning"
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert not sys._is_gil_enabled(), f"{name} takes it back"
print(len(sys.argv) - 1)
"""


def run_without_the_lock(*modules, **variables):
    """The interpreter decides by itself: PYTHON_GIL=0 would keep the lock off in any case."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    environment.update(variables)
    return subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *modules],
                          capture_output=True, text=True, env=environment, cwd=ROOT, check=False)


def extension_modules():
    """The names of all extensions that are built, as they are imported."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    names = []
    for path in package_files(ROOT, {".pyx"}):
        assert path.with_name(path.stem + suffix).exists(), f"{path} is not built"
        where = path.relative_to(ROOT).with_suffix("")
        names.append(".".join(where.parts if where.parts[0] == "mqcore" else
                              ("mqcore", *where.parts)))
    return names


def test_importing_mqcore_leaves_the_lock_off():
    done = run_without_the_lock("mqcore")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_each_package_leaves_the_lock_off():
    names = ["mqcore.api.aio", "mqcore.api.wakers", "mqcore.zmq", "mqcore.zmq.asyncio",
             "mqcore.nng", "mqcore.journal", "mqcore.testing"]
    done = run_without_the_lock(*names)
    assert (done.stdout, done.stderr) == (f"{len(names)}\n", "")


def test_each_extension_module_leaves_the_lock_off():
    names = extension_modules()
    assert len(names) > 100
    done = run_without_the_lock(*names)
    assert (done.stdout, done.stderr) == (f"{len(names)}\n", "")


def test_an_extension_that_is_not_compatible_is_noticed(tmp_path):
    """The check itself: a module without the declaration fails it."""
    (tmp_path / "lock.c").write_text("""
#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "lock", NULL, 0, NULL};
PyMODINIT_FUNC PyInit_lock(void) { return PyModule_Create(&def); }
""")
    made = tmp_path / f"lock{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = sysconfig.get_config_var("CC").split()
    subprocess.run([*compiler, "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}",
                    str(tmp_path / "lock.c"), "-o", str(made)], check=True)
    done = run_without_the_lock("lock", PYTHONPATH=str(tmp_path))
    assert done.returncode and "global interpreter lock" in done.stderr
