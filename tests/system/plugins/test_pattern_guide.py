"""protocols/README.md, followed word for word in an empty folder: the class, then in Cython."""

import os
import re
import subprocess
import sys

import pytest
from installed import QUICK, compilers
from sources import ROOT

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]
BLOCK = re.compile(r"`([\w.]+)`[^`]*?```(\w+)\n(.*?)```", re.S)


def run(*command, cwd, **env):
    answer = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, cwd=cwd,
                            env={**os.environ, **QUICK, **compilers(cwd.parent), **env})
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-4000:]


@pytest.fixture(scope="module")
def guide():
    text = (ROOT / "protocols" / "README.md").read_text()
    return text.partition("## Write one in an afternoon")[2]


def follow(text, folder):
    """Each block into the file that is named before it; the names."""
    names = []
    for name, _, body in BLOCK.findall(text):
        (folder / name).write_text(body)
        names.append(name)
    return names


def install_and_test(folder, site):
    # declarations lie where mqcore is installed; of a tree that was built in place, here
    run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
        "--target", site, ".", cwd=folder, PYTHONPATH=str(ROOT / "build" / "layout"))
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder,
        "test_even.py", cwd=folder, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")


def test_the_guide(guide, tmp_path):
    in_python, _, in_cython = guide.partition("### In Cython")
    folder = tmp_path / "even"
    folder.mkdir()
    names = follow(in_python, folder)
    assert names == ["pyproject.toml", "mqcore_even.py", "test_even.py"]
    install_and_test(folder, tmp_path / "site1")
    (folder / "mqcore_even.py").unlink()
    names = follow(in_cython, folder)
    assert names == ["mqcore_even_fast.pyx", "setup.py", "pyproject.toml"]
    install_and_test(folder, tmp_path / "site2")
