"""An installed mqcore without a build of its own, and plug-ins installed beside it by pip.

The image is a folder like site-packages: what the wheel would put there (`test_packaging` compares
that list with a real wheel), taken from the tree as it is built. Programs run with it, the plug-ins
they ask for, and the tools of the test's own environment on PYTHONPATH; nothing of the tree, and no
editable mqcore: `-S` leaves out the hooks of site-packages, and the image comes first.

A plug-in is installed by the documented command, `pip install --no-build-isolation`, once a
session, into a folder of its own, so that a program sees just those that it names.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from collections.abc import Iterable
from pathlib import Path

from sources import FOLDERS, ROOT, test_only

PATIENCE = 300.0  # seconds; a plug-in may have to be compiled, on a busy machine
LITTER = shutil.ignore_patterns("build", "dist", "__pycache__", "*.egg-info", "*.so", "*.cpp")
SHIPPED = {".py", ".pyi", ".pyx", ".pxd", ".h", ".hpp", ".in", ".so"}  # and py.typed
# for compiling: what is built here is tried, not measured; setuptools has flags of its own for C++
QUICK = {"CFLAGS": "-O0 -g0", "CXXFLAGS": "-O0 -g0"}


def is_shipped(path: Path) -> bool:
    return (path.suffix in SHIPPED or path.name == "py.typed") \
        and "__pycache__" not in path.parts and not test_only(path)


def make_image(site: Path, edit: dict[str, tuple[str, str]] | None = None) -> Path:
    """What the wheel would put into site-packages. `edit`: {path below site: (old, new)}, for an
    mqcore that differs in a line."""
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if is_shipped(path):
                copy = site.joinpath(*package.split("."), path.relative_to(ROOT / folder))
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
    for name, (old, new) in (edit or {}).items():
        text = (site / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        (site / name).write_text(text.replace(old, new))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = site / f"mqcore-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: mqcore\nVersion: {project['version']}\n")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in groups.items()))
    assert compileall.compile_dir(site, quiet=1)    # once, as pip does, and not in each program
    return site


def compilers(base: Path) -> dict[str, str]:
    """Variables with which what is built below `base` is compiled through ccache. None without
    ccache, or if the environment names a compiler. The next run has the same sources in another
    folder, so paths count from `base`."""
    words = {name: sysconfig.get_config_var(name) for name in ("CC", "CXX")}
    if not shutil.which("ccache") or any(name in os.environ or not word or "ccache" in word
                                         for name, word in words.items()):
        return {}
    return {**{name: f"ccache {word}" for name, word in words.items()},
            "CCACHE_BASEDIR": str(base), "CCACHE_NOHASHDIR": "1"}


class Installed:
    """The image and its plug-ins. One a session: `installed` in system/plugins/conftest.py."""

    def __init__(self, folder: Path, edit: dict[str, tuple[str, str]] | None = None) -> None:
        self.folder = folder
        self.site = make_image(folder / "site", edit)
        self.lent = [path for path in sys.path if Path(path).name in ("site-packages",
                                                                      "dist-packages")]
        self._added: dict[Path, Path] = {}
        self._builds = 0
        self._lock = threading.Lock()

    def environment(self, plugins: Iterable[Path] = (), **more: str) -> dict[str, str]:
        path = os.pathsep.join(map(str, (*plugins, self.site, *self.lent)))
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "PYTEST", "MQCORE_"))}
        return {**kept, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1",
                "COLUMNS": "200", **QUICK, **compilers(self.folder), **more}

    def add(self, *projects: Path) -> list[Path]:
        """Install plug-ins, each a folder with a pyproject.toml; the folders they went to."""
        with self._lock:
            for project in projects:
                if project not in self._added:
                    self._added[project] = self._install(project)
            return [self._added[project] for project in projects]

    def add_together(self, *projects: Path) -> list[Path]:
        """Install all of them into one folder, by one call of pip."""
        with self._lock:
            return [self._install(*projects)]

    def add_again(self, project: Path) -> list[Path]:
        """The same for one that has changed since."""
        with self._lock:
            self._added[project] = self._install(project)
            return [self._added[project]]

    def _install(self, *projects: Path) -> Path:
        self._builds += 1  # pip builds in the source folder: let it be another one
        copies = [self.folder / f"source-{self._builds}" / project.name for project in projects]
        for project, copy in zip(projects, copies, strict=True):
            shutil.copytree(project, copy, ignore=LITTER)
        target = self.folder / f"plugin-{self._builds}"
        done = self.pip(target, *copies)
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
        return target

    def pip(self, target: Path, *projects: Path) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps",
                        "--no-index", "--disable-pip-version-check", "--target", target, *projects)

    def run(self, *arguments: object, plugins: Iterable[Path] = (), cwd: Path | None = None,
            **more: str) -> subprocess.CompletedProcess[str]:
        """A Python with these arguments, whose only mqcore is the image."""
        return subprocess.run(
            [sys.executable, "-S", *map(str, arguments)], cwd=cwd or self.folder,
            env=self.environment(plugins, **more), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE)

    def ask(self, program: str, plugins: Iterable[Path] = ()) -> object:
        """What the program prints, as JSON; it must end well."""
        done = self.run("-c", program, plugins=plugins)
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        return json.loads(done.stdout)

    def mq(self, *arguments: object, plugins: Iterable[Path] = (),
           cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The command line `mq ...`."""
        return self.run("-m", "mqcore", *arguments, plugins=plugins, cwd=cwd)

    def suite(self, project: Path, plugins: Iterable[Path]) -> subprocess.CompletedProcess[str]:
        """The tests of a plug-in's own folder, run far from the tree; their names in stdout."""
        copy = self.folder / "suites" / project.name
        with contextlib.suppress(FileExistsError):
            shutil.copytree(project / "tests", copy / "tests", ignore=LITTER)
        return self.run("-m", "pytest", "-v", "-ra", "-p", "no:cacheprovider", "--rootdir", copy,
                        copy / "tests", plugins=plugins, cwd=copy)
