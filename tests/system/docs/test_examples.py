"""Every example of every page runs, ends, and prints what the page says."""

import importlib.util
import os
import shutil

import java
import pytest
from doc_examples import BROKERS, ROOT, Runner, pages, programs, same, together

FOUND = {page.relative_to(ROOT).as_posix(): programs(
    page.read_text(), page.relative_to(ROOT).as_posix()) for page in pages()}


@pytest.fixture(scope="module")
def runner():
    runner = Runner()
    yield runner
    runner.close()


def plain(page):
    return [program for program in FOUND[page]
            if program.kind not in ("spark", *BROKERS.values())]


@pytest.mark.parametrize("page", list(filter(plain, FOUND)))
def test_page(runner, page):
    wrong = runner.run(plain(page))
    assert not wrong, "\n".join(["", *wrong])


@pytest.fixture
def quick_java(request, monkeypatch):
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pip install mqcore[spark]")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: apt-get install openjdk-17-jre-headless")
    cache = getattr(request.config, "cache", None)
    monkeypatch.setenv(java.VARIABLE, java.flags(cache and cache.mkdir("java")))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support") + os.pathsep + str(ROOT))


@pytest.mark.slow
@pytest.mark.timeout(300, func_only=True)       # the archive of Java's classes is made once
def test_programs_that_need_spark(quick_java):
    """All in one process, since a Java takes longer to start than they to run."""
    runner = Runner()
    found = [program for page in FOUND.values() for program in page if program.kind == "spark"]
    wrong = runner.run([together(found)])
    runner.close()
    assert not wrong, "\n".join(["", *wrong])


PAGE = """
```python
x = 1
print("one")
```

```text title="Output"
one
```

<!-- continued -->
```python
print(x{change})
```

```text title="Output"
{printed}
```
"""
WRONG = {
    "raises": PAGE.format(change=" / 0", printed="1"),
    "prints something else": PAGE.format(change="", printed="2"),
    "complains": PAGE.format(change=", file=__import__('sys').stderr", printed="..."),
    "needs the block before": PAGE.format(change="", printed="1").replace("continued", "other"),
    "a command fails": "<!-- run -->\n```console\n$ false\n```\n",
    "a command prints something else": "<!-- run -->\n```console\n$ echo a\nb\n```\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_example_is_found(runner, text):
    assert len(runner.run(programs(text, "page.md"))) == 1


def test_blocks_of_one_file_are_one_program(runner):
    text = PAGE.replace("```python\nprint(x{", "```python title=\"a.py\"\nprint(x{")
    text = text.replace("\n```text title=\"Output\"\none\n```\n", "").format(
        change="", printed="one\n1")
    [program] = programs(text, "page.md")
    assert len(program.chunks) == 1 and runner.run([program]) == []


def test_a_right_example_passes(runner):
    found = programs(PAGE.format(change="", printed="1"), "page.md")
    assert [len(program.chunks) for program in found] == [2] and runner.run(found) == []
    assert same("a\n...\nd", "a\nb\nc\nd\n") and not same("a\n...\nd", "a\nb\n")
