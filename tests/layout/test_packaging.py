"""The distribution: what sdist and wheel hold, the wheel works alone, others can compile on it.

One build for the run, without optimising (it is about contents): support/one_wheel.py. The wheel
goes into an environment of its own, without network and without mqcore's dependencies.
Left out with `-m "not packaging"`.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from installed import QUICK, compilers
from one_wheel import shared_dist
from sources import (
    FOLDERS,
    ROOT,
    TESTS_ONLY,
    cython_functions,
    module_of,
    package_files,
    shipped,
    tracked,
)

import mqcore

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
SITE = sysconfig.get_paths()["purelib"]
SHIPPED = {".py", ".pyi", ".pyx", ".pxd", ".h", ".hpp"}
TEMPLATES = "mqcore/cli/templates"
PAGE = "mqcore/console/page"
LITTER = {".so", ".o", ".pyc", ".cpp", ".egg-info"}
NOT_IN_SDIST = {".gitattributes", ".editorconfig"}


def run(*command, **kw) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, **kw.pop("env", {})}
    answer = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, env=environment, **kw)
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-4000:]
    return answer.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory) -> Path:
    """A folder with one sdist and the wheel that was made from it."""
    return shared_dist(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def wheel(dist) -> Path:
    [path] = dist.glob("mqcore-*.whl")
    return path


@pytest.fixture(scope="session")
def clean(tmp_path_factory, wheel) -> Path:
    """The python of an environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
        "--no-deps", wheel)
    return python


def site(python: Path) -> Path:
    [path] = python.parent.parent.glob("lib/python*/site-packages")
    return path


def ask(python: Path, program: str, **env):
    """Run a program far from the tree; what it prints is JSON."""
    return json.loads(run(python, "-c", program, cwd=python.parent, env=env))


def modules() -> list[str]:
    return [module_of(path) for path in shipped(suffixes={".pyx"})]


def test_sdist_has_every_source(dist):
    [path] = dist.glob("mqcore-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for path in tracked()} - NOT_IN_SDIST
    assert not wanted - names, "missing"
    litter = [name for name in names if Path(name).suffix in LITTER or "__pycache__" in name
              or name.split("/")[0] in {"build", "dist", ".venv", ".git"}]
    assert [name for name in litter if not name.startswith("mqcore.egg-info")] == []


def test_wheel_has_every_module_and_declaration(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = {f"mqcore/_cyutility{SUFFIX}"}       # what Cython's modules share
    for path in shipped(suffixes=SHIPPED):
        where = module_of(path).replace(".", "/")
        wanted.add(where + path.suffix)
        if path.suffix == ".pyx":
            wanted.add(where + SUFFIX)
    wanted.add("mqcore/py.typed")
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / TEMPLATES).rglob("*.in")}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / PAGE).iterdir()}
    assert not wanted - names, "missing"
    wanted.add("pyspark_mqcore/__init__.py")        # what Spark looks for, mqcore.spark.plugin
    packed = {name for name in names if ".dist-info/" not in name}
    assert not packed - wanted, "what is this?"
    info = f"mqcore-{wheel.name.split('-')[1]}.dist-info"
    assert f"{info}/licenses/LICENSE" in names


def test_wheel_has_nothing_of_the_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    found = {path.name.partition(".")[0] for path in (ROOT / TESTS_ONLY).iterdir()} - {"__init__"}
    assert {"native_bench", "probe"} <= found
    assert not [name for name in names if Path(name).name.partition(".")[0] in found
                or "native/" in name or "pipeline" in name.split("/")]
    assert "mqcore/testing/plugin.py" in names


def test_an_install_has_nothing_of_the_tests(clean):
    program = ("import importlib.util, json\n"
               "print(json.dumps(importlib.util.find_spec('mqcore.testing.native')))")
    assert ask(clean, program) is None
    assert (site(clean) / "mqcore" / "testing").is_dir()
    assert not (site(clean) / "mqcore" / "testing" / "native").exists()


def test_it_needs_numpy_at_most(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [path] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        facts = email.message_from_bytes(archive.read(path))
    needed = [text for text in facts.get_all("Requires-Dist") if "extra ==" not in text]
    assert [re.match(r"[\w-]+", text).group() for text in needed] == ["numpy"]
    assert {"cli", "ws", "journal", "spark", "curve", "plugins"} <= set(
        facts.get_all("Provides-Extra"))
    assert not {"test", "perf", "demo"} & set(facts.get_all("Provides-Extra"))
    assert facts["Version"] == mqcore.__version__


def test_it_talks_to_peers_without_a_compiler(clean):
    """pyzmq and pynng come from the environment of the tests, and nothing else is on the PATH."""
    pytest.importorskip("pynng")
    pytest.importorskip("zmq")
    assert "pyzmq" in run(clean, ROOT / "tests" / "data" / "wheel_peers.py", cwd=clean.parent,
                          env={"PYTHONPATH": SITE, "PATH": str(clean.parent)})


def test_only_mqcore_lands_in_site_packages(clean):
    tops = {path.name for path in site(clean).iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {
        "mqcore", "pyspark_mqcore"}


def test_every_compiled_module_imports(clean):
    program = (f"import importlib, json\nnames = {modules()!r}\n"
               "print(json.dumps([importlib.import_module(name).__file__ for name in names]))")
    files = ask(clean, program)
    assert files and all(Path(file).is_relative_to(site(clean)) for file in files)


def test_declared_functions_are_exported(clean):
    """A module that was compiled without its own .pxd imports well and exports nothing."""
    wanted = {}
    for path in shipped(suffixes={".pyx"}):
        pxd = path.with_suffix(".pxd")
        if pxd.exists():
            wanted[module_of(path)] = [
                function.name for function in cython_functions(pxd.read_text())
                if not (function.has_body or function.in_class
                        or "inline" in function.result.split())]
    program = ("import importlib, json\n"
               f"wanted = {wanted!r}\n"
               "print(json.dumps({n: list(getattr(importlib.import_module(n), '__pyx_capi__', {}))"
               " for n in wanted}))")
    exported = ask(clean, program)
    missing = {name: sorted(set(functions) - set(exported[name]))
               for name, functions in wanted.items()}
    assert not {name: functions for name, functions in missing.items() if functions}
    assert "pool_new" in exported["mqcore.base.slab"]


def entry_points(python: Path) -> list[list[str]]:
    program = ("import json\nfrom importlib.metadata import distribution\n"
               "found = distribution('mqcore').entry_points\n"
               "print(json.dumps([[e.group, e.name, e.value] for e in found]))")
    return ask(python, program)


def source_of(module: str) -> Path | None:
    for path in package_files(suffixes={".py", ".pyx"}):
        if module_of(path).removesuffix(".__init__") == module:
            return path
    return None


# groups whose entry points need an extra
EXTRAS = ("console_scripts", "pytest11", "mqcore.monitors")


def test_entry_points_resolve(clean):
    found = entry_points(clean)
    groups = {group for group, _, _ in found}
    assert groups >= {"mqcore.transports", "mqcore.protocols", "mqcore.resolvers",
                      "console_scripts"}
    assert ["pytest11", "mqcore", "mqcore.testing.plugin"] in found
    absent = [value for _, _, value in found if source_of(value.split(":")[0]) is None]
    for group, name, value in found:
        if value in absent:
            continue
        # the command line needs click and rich, the plug-in pytest, the monitor msgspec: lend them
        # the site-packages that runs the tests
        lent = {"PYTHONPATH": SITE} if group in EXTRAS else {}
        module, _, attribute = value.partition(":")
        attribute = attribute or "__name__"
        program = (f"import importlib, json; m = importlib.import_module({module!r});"
                   f"print(json.dumps([m.__file__, hasattr(m, {attribute!r})]))")
        file, there = ask(clean, program, **lent)
        if group == "console_scripts" and not there and not Path(source_of(module)).stat().st_size:
            absent.append(value)    # an empty room
            continue
        assert there, f"{group} {name}: {value} is not there"
        assert Path(file).is_relative_to(site(clean))
    if absent:
        pytest.skip(f"no source yet for {absent}")


def test_a_pattern_of_somebody_else_compiles_and_registers(clean, tmp_path):
    project = tmp_path / "sample_plugin"
    shutil.copytree(ROOT / "tests" / "data" / "sample_plugin", project)
    # setuptools, Cython and pip are lent; mqcore's declarations are those of the installed wheel
    run(clean, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
        project, cwd=project,
        env={"PYTHONPATH": SITE, **QUICK, **compilers(tmp_path.parent)})
    program = """
import json
from importlib.metadata import entry_points
[found] = entry_points(group="mqcore.protocols", name="blackhole")
plugin = found.load()
import sample_blackhole
print(json.dumps([found.dist.name, type(plugin).__module__, plugin.name, plugin.abi,
                  sample_blackhole.swallow(b"x" * 56), sample_blackhole.swallow(b"x" * 57)]))
"""
    assert ask(clean, program) == ["mqcore-sample-plugin", "mqcore.spi.pattern", "blackhole", 5,
                                   [56, False, 0], [57, True, 0]]
    if source_of("mqcore.spi.registry"):
        program = """
import json
from mqcore.spi import registry
[row] = [row for row in registry.patterns() if row.name == "blackhole"]
print(json.dumps([registry.pattern("blackhole").name, row.distribution, row.refused]))
"""
        assert ask(clean, program) == ["blackhole", "mqcore-sample-plugin", ""]


def test_folders_are_not_importable_by_their_own_name(clean):
    program = ("import importlib.util, json\n"
               f"names = {list(FOLDERS)!r}\n"
               "print(json.dumps([importlib.util.find_spec(n) is None for n in names]))")
    assert ask(clean, program) == [name != "mqcore" for name in FOLDERS]
