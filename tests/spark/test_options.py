"""Options and schemas: everything wrong is told, at once, before Spark has done anything."""

import re

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from mqcore.errors import NotSupported, OptionError  # noqa: E402
from mqcore.spark import columns, need_java, options  # noqa: E402
from mqcore.spark.columns import check_schema, full_schema  # noqa: E402
from mqcore.spark.needs import need_pyspark  # noqa: E402
from mqcore.spark.options import BATCH, LIVE, STREAM, WRITE, check, check_read  # noqa: E402
from mqcore.spark.rows import JOURNAL, SOCKET, check_columns  # noqa: E402

READ = {"path": "/data", "subscribe": "a, b"}


KINDS = {"long": LongType(), "binary": BinaryType(), "string": StringType(), "int": IntegerType()}


def schema(text):
    """name kind, a "!" for NOT NULL"""
    rows = [row.split() for row in text.split(",")]
    return StructType([StructField(name, KINDS[kind.strip("!")], "!" not in kind)
                       for name, kind in rows])


def told(call, *args):
    with pytest.raises(OptionError) as caught:
        call(*args)
    return str(caught.value)


def test_defaults_and_values():
    found = check({**READ, "STARTINGOFFSETS": '{"a|0": 3, "b": {"1": -2}}', "batchbytes": "4096",
                   "checkpointLocation": "/x"}, BATCH)
    assert found.subscribe == ("a", "b")
    assert found.startingOffsets == {"a|0": 3, "b|1": -2}
    assert (found.batchBytes, found.failOnDataLoss, found.timeoutMs) == (4096, True, 10_000)
    assert check({**READ, "startingTimestamp": "1500"}, BATCH).startingTimestamp == 1.5
    assert check({**READ, "startingTimestamp": "1970-01-01T00:00:02"},
                 STREAM).startingTimestamp == 2.0


def test_all_mistakes_at_once_with_the_nearest_name():
    text = told(check, {"pth": "/data", "startingOffset": "latest", "failOnDataLoss": "maybe",
                        "minPartitions": "0", "maxOffsetsPerTrigger": "5", "bind": "tcp://*:1",
                        "zzz": "1", "subscribe": "a", "assign": "[1]"}, BATCH)
    for part in ("did you mean path", "did you mean startingOffsets", "neither true nor false",
                 "not a number from 1", "maxOffsetsPerTrigger does not belong to a batch read",
                 "bind is refused", "zzz is not known; known are", "either path",
                 "assign and subscribe", '{"topic": [0, 1]}'):
        assert part in text, part


@pytest.mark.parametrize("name, value, part", [
    ("startingOffsets", "soonest", "earliest, latest or JSON"),
    ("startingOffsets", '{"a": 3}', '"topic|0": 23'),
    ("startingOffsets", '{"a|0": -3}', '"topic|0": 23'),
    ("startingOffsets", '{"a|0":', "not JSON"),
    ("startingTimestamp", "yesterday", "ISO 8601"),
    ("maxMessageBytes", "1k", "not a number"),
    ("pattern", "pull", "forgets what nobody received"),
    ("endpoints", "tcp://127.0.0.1:1", "not both"),
    ("endpoints", "127.0.0.1:1", 'did you mean "tcp://127.0.0.1:1"?'),
    ("endpoints", "tcp://127.0.0.1:1/flights", "names a topic"),
    ("endpoints", "inproc://a", "within one process"),
    ("path", "tcp://127.0.0.1:1", 'option("endpoints"'),
    ("path", "/a,/b,/a", "/a is named twice"),
    ("path", '["/a", 3]', 'not of the form ["/data/a"'),
])
def test_values_that_are_refused(name, value, part):
    assert part in told(check, {**READ, name: value}, STREAM)


def test_more_tasks_at_least_than_at_most():
    text = told(check, {**READ, "minPartitions": "9", "maxPartitions": "8"}, STREAM)
    assert "minPartitions, 9, is more than maxPartitions, 8" in text


def test_choosing_topics():
    assert 'option("subscribePattern", ".*")' in told(check, {"path": "/data"}, BATCH)
    pattern = check({"path": "/d", "subscribePattern": "f.*"}, BATCH).subscribePattern
    assert pattern == re.compile("f.*")
    assert "no regular expression" in told(check, {"path": "/d", "subscribePattern": "("}, BATCH)
    assert check({"path": "/d", "assign": '{"a": [0, 2]}'}, BATCH).assign == {("a", 0), ("a", 2)}


def test_several_places():
    def nodes(**given):
        return check({**given, "subscribe": "a"}, STREAM).nodes
    assert nodes(path="/a, file:///b") == ("/a", "/b")
    assert nodes(path='["/a,b", "/c"]') == ("/a,b", "/c")
    assert nodes(endpoints="tcp://a:1, tls+tcp://b:2?tls_ca=/x") == (
        "tcp://a:1", "tls+tcp://b:2?tls_ca=/x")


def test_live_sockets():
    given = {"endpoints": "tcp://a:1,tcp://b:2", "pattern": "sub", "idleMs": "5", "subscribe": "x"}
    found = check(given, LIVE)
    assert (found.pattern, found.idleMs, found.subscribe, found.hwm) == ("sub", 5, ("x",), 1000)
    check_read(given)
    text = told(check_read, {"pattern": "push", "path": "/a", "maxOffsetsPerTrigger": "3"})
    for part in ("endpoints is missing", "push sends", "maxMessages or idleMs is needed",
                 "path does not belong to a batch read from live sockets",
                 "maxOffsetsPerTrigger does not"):
        assert part in text, part
    assert "everything twice" in told(check, {**given, "numPartitions": "3"}, LIVE)
    assert "subscribe has no meaning" in told(check, {**given, "pattern": "pull"}, LIVE)
    assert "pull receives" in told(check, {"endpoints": "tcp://a:1", "pattern": "pull"}, WRITE)
    assert "timestamp is timestamp" in told(check_schema, schema("timestamp long"), columns.LIVE)
    assert "offset is not known" in told(check_schema, schema("offset long"), columns.LIVE)


def test_writing_goes_to_one_place():
    assert check({"path": '["/a,b"]'}, WRITE).folder == "/a,b"
    assert "a write goes to one folder" in told(check, {"path": "/a,/b"}, WRITE)
    assert check({"endpoints": "tcp://a:1,tcp://b:2", "pattern": "PUB"}, WRITE).pattern == "pub"
    assert "either path" in told(check, {}, WRITE)
    assert "not both" in told(check, {"path": "/d", "endpoints": "tcp://a:1"}, WRITE)
    assert "pattern has no meaning with path" in told(
        check, {"path": "/d", "pattern": "pub"}, WRITE)
    assert "subscribe does not belong to a write" in told(check, {"path": "/d", "subscribe": "a"},
                                                          WRITE)


def test_a_schema_is_a_projection():
    check_schema(schema("offset long, value binary, topic string!"))
    check_schema(full_schema(True, True))
    text = told(check_schema, schema("value string, offest long, key binary!"))
    assert "value is binary, not string" in text
    assert "offest is not known" in text and "key may be null" in text


def test_columns_to_write():
    check_columns(schema("value string, key binary, topic string"), SOCKET, False, None)
    text = told(check_columns, schema("key long, headers string, extra int"), JOURNAL,
                True, None)
    for part in ("only ever appended", "no column value", "key is bigint, not binary or string",
                 "headers are not written", "extra is not known", "no column topic"):
        assert part in text, part


def test_without_java_or_pyspark(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotSupported, match="JAVA_HOME=.* has none; .*openjdk-17-jre-headless"):
        need_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotSupported, match="none on the PATH"):
        need_java()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotSupported, match=r"package pyspark; pip install mqcore\[spark\]"):
        need_pyspark()


def test_the_table_is_in_the_manual():
    from pathlib import Path

    manual = (Path(options.__file__).parent / "README.md").read_text()
    assert not [name for name in options.TABLE if f"`{name}`" not in manual]
