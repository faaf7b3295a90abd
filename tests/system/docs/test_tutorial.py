"""The tutorial is completed on a bare machine, by copy and paste: a new folder, a new environment,
the wheel, and nothing but what the pages say. Left out with `-m "not packaging"`."""

import importlib.util
import shutil

import java
import pytest
from doc_examples import DOCS
from follow import Shell, bare, follow, lend, steps
from one_wheel import shared_dist

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]
START = DOCS / "start"


@pytest.fixture
def shell(tmp_path, tmp_path_factory):
    """A shell of somebody who has Python and nothing else. The packages that the extras want are
    lent, since tests have no network; mqcore is not among them."""
    wheels = shared_dist(tmp_path_factory.getbasetemp())
    lent = lend(tmp_path / "lent", ["numpy", "click", "rich", "msgspec", "pyarrow", "pyspark",
                                    "pandas"])
    assert not (lent / "mqcore").exists()
    (tmp_path / "home").mkdir()
    with Shell(tmp_path / "home", bare(tmp_path, lent, wheels)) as shell:
        yield shell


def until(page, text, folder):
    """The page, up to this text."""
    path = folder / page.name
    path.write_text(page.read_text().partition(text)[0])
    return path


@pytest.mark.slow
def test_the_tutorial_is_completed(shell, tmp_path):
    assert follow(START / "tutorial.md", shell) == []
    without_java = until(START / "journal-spark.md", "## Query it with Spark", tmp_path)
    assert follow(without_java, shell) == []
    where, status = shell.type("python -c 'import mqcore; print(mqcore.__file__)'")
    assert status == 0 and where.startswith(str(shell.folder / ".venv"))


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pip install mqcore[spark]")
@pytest.mark.skipif(shutil.which("java") is None,
                    reason="Spark needs Java: apt-get install openjdk-17-jre-headless")
def test_the_journal_is_queried(shell, tmp_path, request):
    cache = getattr(request.config, "cache", None)
    flags = java.flags(cache and cache.mkdir("java"))
    assert shell.type(f"export {java.VARIABLE}='{flags}'")[1] == 0
    assert follow(until(START / "tutorial.md", "## Request and reply", tmp_path), shell) == []
    assert follow(START / "journal-spark.md", shell) == []


def test_all_programs_of_the_pages_are_followed():
    for page, files in (("tutorial.md", 7), ("journal-spark.md", 3)):
        found = list(steps((START / page).read_text()))
        assert len({step.file for step in found} - {""}) == files
        assert all(step.file or step.text for step in found)
        assert (START / page).read_text().count("```python") == sum(
            bool(step.file) for step in found), "a program without a file"


WRONG = {
    "prints something else": "```console\n$ echo a\nb\n```\n",
    "fails": "```console\n$ false\n```\n",
    "an output is missing": "```console\n$ true\n```\n\n```text title=\"Output\"\nb\n```\n",
    "was never saved": "```console\n$ sh a.sh\n```\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_step_is_found(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    with Shell(tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        assert len(follow(page, shell)) == 1
