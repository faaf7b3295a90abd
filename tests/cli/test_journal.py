"""`mq journal`: what the commands print and how they end."""

import json
import signal

import pytest
from click.testing import CliRunner
from programs import mq as command
from programs import run

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


def test_recorded_served_replayed(start, tmp_path, where, mq_context):
    """Out of one journal through sockets into another, and read from there by its address."""
    there = tmp_path / "there"
    recorder = start(*command("journal", "record", there, "pull", "--bind", "tcp://127.0.0.1:0",
                              "--topic-from", "first-part", "--stamps", "--deduplicate",
                              "--every", 0))
    url = recorder.line()
    status, _, err = run(*command("journal", "replay", where, "push", "--connect", url, "-s", "t",
                                  "--speed", 0, "--topic-part", "--stamps"))
    assert (status, err) == (0, "6 messages\n")
    with journal.open(where, topic="t") as reader:
        until = reader.end
    while not (there / "t" / "0").is_dir():
        assert recorder.process.poll() is None
    with journal.open(there, topic="t") as reader:
        found = []
        for records in reader.follow(0, timeout=20):
            found += records.to_list()
            if len(found) == until:
                break
        assert reader.read(0).sequences.tolist()[:3] == [0, 1, 3]
    server = start(*command("journal", "serve", there, "--bind", "tcp://127.0.0.1:0",
                            "--every", 0))
    with journal.open(f"{server.line()}/t", context=mq_context) as reader:
        assert [m for records in reader.batches() for m in records] == found
    with journal.open(where, topic="t") as reader:
        assert [m for records in reader.batches() for m in records] == found
    for program in (recorder, server):
        status, _, err = program.end(signal.SIGINT)
        assert status == 130 and "Traceback" not in err


def test_a_full_disk_reaches_who_records(start, tmp_path):
    """A file size limit stands for the disk: the command ends with what is wrong."""
    code = ("import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.argv[0] = 'mq';"
            "from mqcore.cli import main; main()")
    recorder = start("-c", code, "journal", "record", tmp_path / "j", "rep", "--bind",
                     "tcp://127.0.0.1:0", "--every", 0)
    url = recorder.line()
    status, out, err = run(*command("cat", "req", url, "-d", "x" * 8000, "-n", 1, "--timeout", 2))
    assert status in (1, 3) and out == b""         # the answer never comes
    status, _, err = recorder.result()
    assert status == 1 and "cannot write" in err and "Traceback" not in err


@pytest.mark.parametrize("args", [
    ("record", "x", "pull"), ("record", "x", "dish", "--bind", "tcp://127.0.0.1:0"),
    ("record", "x", "pull", "--bind", "tcp://127.0.0.1:0", "--subscribe", "a"),
    ("replay", ".", "push"), ("serve", "."), ("record", "x", "push")])
def test_wrong_arguments(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with journal.open(".", "a"):
        pass
    assert "rror" in mq(*args, status=2)
