"""`mq journal`: what the commands print and how they end."""

import json

import pytest
from click.testing import CliRunner

from mqcore import journal
from mqcore.cli import cli


@pytest.fixture
def where(tmp_path):
    with journal.open(tmp_path / "j", "a", topic="t", stamps=True) as writer:
        for i in (0, 1, 3):
            writer.append(journal.stamp(9, i) + b"m%d\x00" % i)
            writer.commit()
        writer.append_many([b"last"] * 3, time=5)
    return tmp_path / "j"


def mq(*args, status=0):
    answer = CliRunner().invoke(cli, ["journal", *map(str, args)], catch_exceptions=False)
    assert answer.exit_code == status, answer.output
    return answer.output


def test_ls(where):
    [row] = map(json.loads, mq("ls", where, "--json").splitlines())
    assert (row["topic"], row["first"], row["end"], row["segments"]) == ("t", 0, 6, 1)
    assert "t" in mq("ls", where)


def test_tail(where):
    assert mq("tail", where, "-s", "t", "-n", "2") == "last\nlast\n"
    lines = mq("tail", where, "-s", "t", "--from", 0, "--json").splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(6))
    assert json.loads(lines[0])["value"] == "m0\x00" and json.loads(lines[5])["time"] == 5


def test_verify_and_repair(where):
    assert "1 producers: 1 messages missing, 0 twice" in mq("verify", where)
    assert "nothing" in mq("repair", where, "-s", "t")
    [path] = (where / "t" / "0").glob("*.mqj")
    raw = bytearray(path.read_bytes())
    raw[512 + 130] ^= 1
    path.write_bytes(raw)
    assert "at byte 512" in mq("verify", where, status=1)
    assert "damaged" in mq("repair", where, "-s", "t")
    mq("verify", where)
    mq("repair", where, "-s", "none", status=2)


@pytest.mark.keeps(threads=16, why="pyarrow's pool")
def test_export(where, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    mq("export", where, tmp_path / "f.parquet", "-s", "t")
    table = parquet.read_table(tmp_path / "f.parquet")
    assert table.column("offset").to_pylist() == list(range(6))
    assert table.column("value").to_pylist()[3:] == [b"last"] * 3
