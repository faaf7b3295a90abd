"""Zinc's page: two tabs and a program edit one text, in a real browser."""

import json
import random
import sys
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from programs import starter
from waiting import until

ZINC = Path(__file__).resolve().parents[3] / "examples" / "zinc"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)")

TYPE = """(() => {
  const area = document.getElementById("text"), text = area.value;
  area.value = %s;
  area.dispatchEvent(new Event("input"));
})()"""
SHOWN = 'document.getElementById("text").value'
COUNTS = """(() => {
  const { applied, echoes, vector } = zinc.document;
  return [applied, echoes, Object.values(vector).reduce((a, b) => a + b, 0)];
})()"""
REPLAY = """(async () => {
  const { Document } = await import("./zinc.js");
  return %s.map((edits) => {
    const copy = new Document("0000000c");
    for (const edit of edits) copy.offer([edit]);
    return [copy.text(), copy.applied, copy.held.size];
  });
})()"""


@pytest.fixture
def serve():
    with starter() as start:
        yield lambda *root: start(ZINC / "serve.py", 0, *root)


@pytest.mark.slow
def test_two_tabs_edit_one_document(serve, tmp_path):
    server = serve()
    page, *root = server.line().split()
    other = serve(*root)        # a child of the first, with a page of its own
    below = other.line().split()[0]
    with Browser(tmp_path / "one", hosts=("127.0.0.1",)) as one, \
            Browser(tmp_path / "two", hosts=("127.0.0.1",)) as two:
        assert one.open(page) == [] and two.open(below) == []

        def shows(text):
            until(lambda: one.run(SHOWN) == two.run(SHOWN) == text, 60)

        one.run(TYPE % '"base"')
        shows("base")
        one.run(TYPE % '"one " + text')
        two.run(TYPE % 'text + " two"')     # at the same time, or after: the same in the end
        shows("one base two")
        one.run(TYPE % json.dumps("three 𝄞\nlines\nof é"))
        shows("three 𝄞\nlines\nof é")
        two.run(TYPE % json.dumps("three 𝄞\nof é"))
        shows("three 𝄞\nof é")
        for tab in (one, two):      # each edit once, the own ones as well, whose echo came
            until(lambda tab=tab: tab.run(COUNTS)[1] > 0, 60)
            applied, _, made = tab.run(COUNTS)
            assert applied == made
    for program in (server, other):
        while json.loads(program.line()) != "three 𝄞\nof é":
            pass


def test_both_languages_make_the_same_text(serve, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ZINC))
    from document import Document

    choose, one, two = random.Random(5), Document("0000000a"), Document("0000000b")
    edits = []
    for _ in range(100):
        copy = choose.choice((one, two))
        length = len(list(copy.ids()))
        edits.append(copy.insert(choose.randint(0, length), choose.choice(["a", "bc", "𝄞"]))
                     if length < 3 or choose.random() < 0.7 else copy.delete(length - 2, 2))
        if choose.random() < 0.2:
            one.offer(edits), two.offer(edits)
    one.offer(edits), two.offer(edits)
    orders = [choose.sample(edits * 2, 2 * len(edits)) for _ in range(10)]
    with Browser(tmp_path / "tab", hosts=("127.0.0.1",)) as tab:
        tab.open(serve().line().split()[0])
        found = tab.run(REPLAY % json.dumps(orders))
    assert found == [[one.text(), 100, 0]] * 10 and one.digest() == two.digest()
    del sys.modules["document"]
