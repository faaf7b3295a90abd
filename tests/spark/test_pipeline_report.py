"""The whole pipeline: a small run, what it must equal, the report page, the command."""

import json
import re
import signal
from collections import Counter
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from programs import starter

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")
pd = pytest.importorskip("pandas", reason="pip install mqcore[spark]")
pytest.importorskip("matplotlib", reason="pip install matplotlib")

import mqcore as mq  # noqa: E402
from examples.pipeline import report  # noqa: E402
from examples.pipeline import run as library  # noqa: E402
from examples.pipeline.__main__ import pipeline  # noqa: E402
from examples.pipeline.feed import Days  # noqa: E402
from examples.pipeline.processes import alive, descendants  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
STARTED = 1_800_000_000


@pytest.fixture
def finished(tmp_path):
    """The folder of a run that never was: ten seconds, two producers."""
    times = pd.to_datetime([STARTED + i for i in range(10)] * 2, unit="s", utc=True)
    topics = ["flights"] * 10 + ["weather"] * 10
    counts = list(range(100, 120))
    talkers = [("carrier", "<UA>", 9000, 90), ("carrier", "B6", 8000, 80), ("key", "EWR", 1, 2)]
    tables = {
        "rates": {"start": times, "seconds": 1.0, "topic": topics, "messages": counts},
        "latency": {"start": times, "topic": topics, "n": counts, "p50": 0.5, "p90": 0.9,
                    "p99": 7.25, "max": 31.5},
        "sequences": {"producer": [1, 4], "messages": [1045, 1145], "missing": [3, 0],
                      "duplicates": [0, 2]},
        "talkers": dict(zip(("by", "name", "messages", "bytes"), zip(*talkers, strict=True),
                            strict=True))}
    for name, columns in tables.items():
        (tmp_path / "results" / name).mkdir(parents=True)
        pd.DataFrame(columns).to_parquet(tmp_path / "results" / name / "0.parquet")
    (tmp_path / "producers").mkdir()
    for number, first in ((1, 100), (4, 110)):
        (tmp_path / "producers" / f"{number}.json").write_text(json.dumps({
            "producer": number, "messages": 1045, "dropped": 0, "undelivered": 0,
            "seconds": {str(STARTED + i): [first + i, 999] for i in range(10)}}))
    (tmp_path / "run.json").write_text(json.dumps({
        "settings": {"speed": 14.0, "keep": False}, "started": STARTED, "fed": STARTED + 9,
        "steps": [[0, 0.25], [5, 1.0]], "sums": [["stored", 2190, 2190], ["read", 2189, 2190]],
        "problems": ["read: 2,189 instead of 2,190"], "comparison": "12 hours <compared>",
        "progress": [{"query": "hourly", "batch": 0, "rows": 5, "seconds": 1.5, "state_rows": 2,
                      "watermark": None}]}))
    return tmp_path


@pytest.mark.keeps(fds=9, threads=8, why="fonts of matplotlib; threads of pyarrow")
def test_the_page(finished):
    page = report.write(finished).read_text()
    assert page.count("<svg") == 3
    drawn = [ElementTree.fromstring(text) for text in
             re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    ids = Counter(node.get("id") for svg in drawn for node in svg.iter() if node.get("id"))
    assert max(ids.values()) == 1
    named = set(re.findall(r'url\(#([^)]+)\)|xlink:href="#([^"]+)"', page))
    assert {a or b for a, b in named} <= set(ids)
    assert "<script" not in page and not re.search(r'(?:src|[^:]href)="(?!#)', page)

    text = [node.text for node in drawn[2].iter(f"{SVG}text")]
    assert {"producer 1", "producer 4", "flights", "weather"} <= set(text)
    assert '<p class="bad">read: 2,189 instead of 2,190</p>' in page
    assert '<td>2,190</td><td>2,190</td><td class="good">=' in page
    assert '<td>2,189</td><td>2,190</td><td class="bad">differs' in page
    assert "<td>&lt;UA&gt;</td><td>9,000</td><td>90</td>" in page and "<UA>" not in page
    assert "12 hours &lt;compared&gt;" in page
    # the producer's account beside what Spark has read: 1,045 sent, 3 missing; 2 twice
    assert "<td>1</td><td>1,045</td><td>0</td><td>0</td><td>1,045</td><td>3</td><td>0</td>" in page
    assert "<td>4</td><td>1,045</td><td>0</td><td>0</td><td>1,145</td><td>0</td><td>2</td>" in page
    # 100 + i of flights and 110 + i of weather in second i; the last one is behind the feed
    assert "<td>25%</td><td>214</td><td>0.50</td><td>7.25</td><td>31.50</td>" in page
    assert "<td>100%</td><td>223</td>" in page


def test_what_is_missing_is_said_first(monkeypatch, tmp_path):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(mq.NotSupported, match="pip install matplotlib"):
        library.run(library.Settings(tmp_path))
    assert not list(tmp_path.iterdir())


def test_only_what_runs_have_left_is_deleted(tmp_path):
    out = tmp_path / "new" / "out"
    library.prepare(out)
    (out / "results" / "hourly").mkdir(parents=True)
    (out / "run.json").touch()
    library.prepare(out)
    assert [path.name for path in out.iterdir()] == [".pipeline"]
    (out / "thesis.txt").touch()
    with pytest.raises(mq.OptionError, match="thesis.txt"):
        library.prepare(out)
    (tmp_path / "results").mkdir()      # somebody else's
    with pytest.raises(mq.OptionError, match="new, results"):
        library.prepare(tmp_path)
    assert (tmp_path / "results").is_dir()


def test_a_failure_stops_its_own_queries():
    class Query:
        def __init__(self, number):
            self.id = number

        def stop(self):
            spark.streams.active.remove(self)

    spark = SimpleNamespace(streams=SimpleNamespace(active=[Query(1)]))
    with library._no_query_left(spark):
        spark.streams.active.append(Query(2))
    with pytest.raises(KeyboardInterrupt), library._no_query_left(spark):
        spark.streams.active += [Query(3), Query(4)]
        raise KeyboardInterrupt
    assert [query.id for query in spark.streams.active] == [1, 2]


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("words, told", [
    (["--help"], "--through [path|servers]"),
    (["--days", "400"], "days '400'"),
    (["--days", "9-3"], "the first N days, or A-B"),
    (["--speed", "-1"], "--speed"),
    (["--cluster", "x"], "--cluster"),
    (["--through", "pigeon"], "--through"),
    (["--out", __file__], "is a file"),
])
def test_arguments(words, told):
    done = CliRunner().invoke(pipeline, words)
    assert done.exit_code == (0 if words == ["--help"] else 2) and told in done.output


@pytest.mark.parametrize("broken", [False, True])
def test_the_status_says_whether_all_is_well(monkeypatch, tmp_path, broken):
    asked = []

    def run(settings, note):
        asked.append(settings)
        outcome = library.Outcome(settings.out, 1.0, comparison="9 hours are as pandas has them")
        outcome.sum("in the journals", 7 - broken, 7)
        return outcome
    monkeypatch.setattr(library, "run", run)
    done = CliRunner().invoke(pipeline, ["--days", "2-4", "--speed", "0", "--out", str(tmp_path),
                                         "--through", "servers", "--master", "local[1]"])
    assert asked == [library.Settings(tmp_path, Days(2, 4), 0.0, "local[1]", 0, "servers")]
    assert done.exit_code == broken and "report.html" in done.output
    assert ("WRONG: in the journals: 6 instead of 7" in done.output) == broken
    assert ("nothing is missing" in done.output) != broken


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("quick_java", "pipeline_path")
def test_ctrl_c_leaves_nothing(tmp_path):
    with starter() as start:
        program = start("-m", "examples.pipeline", "--days", "30", "--speed", "1", "--out",
                        tmp_path / "out", "--master", "local[1]")
        while "messages stored" not in program.line("err", 90):
            pass
        below = descendants(program.process.pid)
        assert len(below) >= 8          # six of the fleet, the subscriber, Java and its Python
        assert program.end(signal.SIGINT)[0] == 130
        assert not alive().keys() & set(below)


# -- a small run ---------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.keeps(fds=30, threads=40, why="py4j's callback server; fonts; pyarrow's threads")
def test_three_days_through_the_servers(spark, tmp_path):
    notes = []
    outcome = library.run(
        library.Settings(tmp_path, Days(1, 3), 6.0, through="servers", keep=True), spark=spark,
        note=notes.append)
    assert outcome.ok, outcome.problems
    assert any("2,910 of 2,910 messages stored" in text for text in notes)
    sums = {what: found for what, found, _ in outcome.sums}
    assert sums["in the journals"] == sums["read by Spark"] == 2916     # six ends
    assert sums["hours that the subscriber has"] == 162
    assert len((tmp_path / "hourly.txt").read_text().splitlines()) == 162
    assert outcome.report.read_text().count("<svg") == 3
    assert not spark.streams.active

    # and it would have been seen: an hour that differs in the files, or at the subscriber
    said = json.loads((tmp_path / "hourly.json").read_text())
    said[7]["flights"] += 1
    (tmp_path / "hourly.json").write_text(json.dumps(said))
    hours = library.truth.read_table(None, tmp_path / "results" / "hourly")
    library._published(outcome, hours, len(said))
    assert "the subscriber's hours are not those of the files" in outcome.problems.pop()
    assert outcome.ok
    library._compare(outcome, Days(1, 2), tmp_path / "results")
    assert "is not in the files" in outcome.problems.pop()
