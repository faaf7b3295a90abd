"""What tools/build.py puts into the environment."""

import importlib.util
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
spec = importlib.util.spec_from_file_location("build", TOOLS / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)


def test_a_start_of_python_imports_little():
    """Each process of a program pays for what the environment imports at the start."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True,
        check=True).stdout.split()
    assert not {"pathlib", "re", "typing", "importlib.util"} & set(loaded), loaded


def test_the_finder(tmp_path):
    """It finds packages and what is in them, and nothing else."""
    for place in ("tree", "tree/inner", "elsewhere"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "__init__.py").write_text("")
    (tmp_path / "elsewhere" / "leaf.py").write_text("found = __file__")
    folders = {"tree": f"{tmp_path}/tree", "tree.mapped": f"{tmp_path}/elsewhere"}
    (tmp_path / "finder.py").write_text(build.FINDER.format(folders=folders))
    program = ("import finder; finder.install(); finder.install()\n"
               "import sys, tree.inner, tree.mapped.leaf\n"
               "print(tree.mapped.leaf.found, sys.meta_path.count(finder.Finder))\n"
               "import tree.absent\n")
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=tmp_path, text=True,
                          capture_output=True, check=False)
    assert done.stdout.split() == [str(tmp_path / "elsewhere" / "leaf.py"), "1"]
    assert "No module named 'tree.absent'" in done.stderr
