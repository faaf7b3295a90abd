"""`mq journal`: what the commands print and how they end."""

import contextlib
import json
import signal
import time

import pytest
from click.testing import CliRunner
from journal_case import LEFT, repaired
from programs import mq as command
from programs import run

import mqcore as library
from mqcore import journal
from mqcore.cli import cli


@pytest.fixture(scope="module", autouse=True)
def default_context():
    """Commands use it; its threads and descriptors stay, so they are here before any is counted."""
    with library.Pull(bind="inproc://journal-commands"), \
            library.Push(connect="inproc://journal-commands"):
        pass


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


def test_backup(where, tmp_path):
    to = tmp_path / "saved"
    [row] = map(json.loads, mq("backup", where, to, "--json").splitlines())
    assert (row["topic"], row["partition"], row["first"], row["end"]) == ("t", 0, 0, 6)
    assert mq("tail", to, "-s", "t") == mq("tail", where, "-s", "t")
    assert "t/0: messages 0 to 5" in mq("backup", where, tmp_path / "again", "-s", "t", "-p", 0)
    assert "6 messages" in mq("verify", to)
    mq("groups", to, "-s", "t", "--set", "g", "end")


def test_truncate_and_delete(where, tmp_path):
    assert mq("truncate", where, 6, "-s", "t") == "t/0: the first message is 6\n"
    assert mq("backup", where, tmp_path / "b", "-s", "t").startswith("t/0: no messages, the next")
    assert mq("rename", where, "-s", "t", "--to", "u") == "t is u now: 1 partition\n"
    assert mq("rename", where, "-s", "u", "--to", "t") == "u is t now: 1 partition\n"
    assert "--topic" in mq("delete", where, status=2)
    assert "Delete t from" in mq("delete", where, "-s", "t", status=1)      # nobody says yes
    assert mq("delete", where, "-s", "t", "-p", 0, "--yes") == "t/0: 1 partition deleted\n"
    assert mq("ls", where, "--json") == ""


ESCAPES = b"\x1b]0;owned\x07\x1b[2J\rfake\nline\x00\x9b1m\x7f\\"


@pytest.mark.parametrize("form", ["ascii", "json", "hex"])
def test_tail_prints_nothing_that_a_terminal_obeys(tmp_path, form):
    with journal.open(tmp_path, "a") as writer:
        writer.append(ESCAPES, key=b"\x1bk", headers=[("n", b"\x1b")])
    answer = CliRunner().invoke(cli, ["journal", "tail", str(tmp_path), "--format", form])
    raw = answer.stdout_bytes
    assert answer.exit_code == 0 and raw.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7f for byte in raw.rstrip(b"\n"))


def test_tail_in_other_forms(where):
    assert mq("tail", where, "-s", "t", "-n", 1, "--format", "hex") == b"last".hex() + "\n"
    assert mq("tail", where, "-s", "t", "-n", 2, "--format", "raw") == "lastlast"
    assert mq("tail", where, "-s", "t", "--since", "1970-01-01T00:00:00+00:00", "-n", 1
              ).count("\n") == 6
    assert mq("tail", where, "-s", "t", "--since", "1h").startswith("m0")
    mq("tail", where, "--since", "1h", "--from", 3, status=2)
    mq("tail", where, "--since", "yesterday", status=2)


@pytest.fixture
def served(where, mq_context):
    with journal.serve(where, "tcp://127.0.0.1:0", groups=True, context=mq_context) as server:
        yield server.urls[0]


@pytest.mark.keeps(threads=16, why="pyarrow's pool")
def test_the_same_of_a_server(where, served, tmp_path):
    """Commands that only read take an address, too."""
    [here], [there] = (list(map(json.loads, mq("ls", place, "--json").splitlines()))
                       for place in (where, served))
    assert here.pop("segments") == 1 and there.pop("segments") is None and here == there
    for args in (("-n", 3), ("--from", 1, "--json"), ("--since", "1h")):
        assert mq("tail", f"{served}/t", *args) == mq("tail", where, "-s", "t", *args)
    assert "1 messages missing" in mq("verify", served)
    pytest.importorskip("pyarrow")
    assert mq("export", f"{served}/t", tmp_path / "f.parquet")
    mq("tail", where, "--key", where, status=2)
    assert "folder" in mq("tail", where, "-o", "linger=1", status=2)


def test_serve_by_rights(where, tmp_path, start):
    """Strangers see nothing; the hint says who grants it."""
    with journal.open(where, "a", topic="secret") as writer:
        writer.append(b"s")
    (tmp_path / "rights.toml").write_text('["*"]\nread = "t"\n')
    serve = command("journal", "serve", where, "--bind", "tcp://127.0.0.1:0", "--rights",
                    tmp_path / "rights.toml", "--every", 0)
    url = start(*serve).line().strip()
    assert [json.loads(line)["topic"] for line in mq("ls", url, "--json").splitlines()] == ["t"]
    status, _, said = run(*command("journal", "tail", f"{url}/secret"))
    assert status and "may not read topic 'secret'" in said and "--rights" in said
    (tmp_path / "rights.toml").write_text("[alice]\nlist = []\n")
    status, _, said = run(*serve)
    assert status and "'list' is not known" in said


def test_recorded_by_rights(tmp_path, start):
    (tmp_path / "rights.toml").write_text('["*"]\nwrite = "log-*"\n')
    url = start(*command("journal", "record", tmp_path / "j", "rep", "--bind",
                         "tcp://127.0.0.1:0", "--topic-from", "first-part", "--rights",
                         tmp_path / "rights.toml", "--every", 0)).line().strip()
    with library.Req(connect=url) as req:
        for topic, right in ((b"log-a", True), (b"orders", False)):
            answer = req.request([topic, b"x"], timeout=20)
            with contextlib.nullcontext() if right else pytest.raises(journal.JournalDenied):
                assert journal.stored_at(answer) == (0, 0)
    assert [path.name for path in (tmp_path / "j").iterdir()] == ["log-a"]


def test_groups(where, served):
    assert mq("groups", where, "-s", "t").split() == ["group", "offset", "behind"]
    mq("groups", where, "-s", "t", "--set", "a", 2, "--set", "b", "end")
    rows = [json.loads(line) for line in mq("groups", served, "-s", "t", "--json").splitlines()]
    assert rows == [{"group": "a", "offset": 2, "behind": 4},
                    {"group": "b", "offset": 6, "behind": 0}]
    mq("groups", f"{served}/t", "--set", "a", "first")
    with journal.open(where, topic="t") as reader:
        assert reader.groups() == {"a": 0, "b": 6}
    with pytest.raises(journal.GroupMoved, match="'a' is at 0, and was expected to be at 3"):
        mq("groups", where, "-s", "t", "--set", "a", "end", "--expected", "3")
    mq("groups", where, "-s", "t", "--set", "a", "3", "--expected", "first")
    mq("groups", where, "-s", "t", "--set", "c", "2", "--expected", "never")
    mq("groups", where, "-s", "t", "--set", "a", "3", "--expected", "x", status=2)
    with journal.open(where, topic="t") as reader:
        assert reader.groups() == {"a": 3, "b": 6, "c": 2}
    mq("groups", where, "-s", "t", "--set", "a", "-1", status=2)


def test_a_mirror(where, served, tmp_path):
    assert "6 messages copied" in mq("mirror", f"{served}/t", tmp_path / "m", "--once")
    assert "0 messages copied" in mq("mirror", where, tmp_path / "m", "-s", "t", "--once")
    with journal.open(tmp_path / "m", topic="t") as copy, journal.open(where, topic="t") as source:
        assert [m for records in copy.batches() for m in records] == \
            [m for records in source.batches() for m in records]


def test_a_bad_topic_does_not_hide_the_others(where):
    (where / "bad" / "0").mkdir(parents=True)
    (where / "bad" / "0" / "00000000000000000000.mqj").mkdir()
    (where / "t2" / "0").mkdir(parents=True)
    output = mq("ls", where, "--json", status=1)
    assert [json.loads(line)["topic"] for line in output.splitlines() if line[0] == "{"] == [
        "t", "t2"] and "bad" in output
    assert "1 messages missing" in mq("verify", where, status=1)


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


def test_names_that_are_not_there_are_an_error(where, served):
    """Not a journal without damage."""
    for place in (where, served):
        assert "no topic 'typo'" in mq("verify", place, "-s", "typo", status=2)
        assert "no journal with a partition 7" in mq("verify", place, "-p", 7, status=2)
        assert mq("verify", place, "-s", "t", "-p", 0).startswith("t/0: ")
    mq("repair", where, "-s", "typo", status=2)


def test_messages_beyond_the_end_are_an_error(where):
    mq("tail", where, "-s", "t", "--from", 6)
    answers = [CliRunner().invoke(cli, ["journal", *map(str, args)]) for args in (
        ("tail", where, "-s", "t", "--from", 7),
        ("replay", where, "push", "--bind", "inproc://beyond", "-s", "t", "--wait", 0, "--from", 7)
    )]
    for answer in answers:
        assert answer.exit_code == 1
        assert "message 7 is beyond the end of the journal, 6" in str(answer.exception)


def test_a_journal_is_not_its_own_mirror(where):
    answer = CliRunner().invoke(cli, ["journal", "mirror", str(where), str(where), "-s", "t",
                                      "--once"])
    assert answer.exit_code == 1 and "its own mirror" in str(answer.exception)


@pytest.mark.keeps(threads=16, why="pyarrow's pool")
def test_tombstones(tmp_path):
    """None of them can be taken for an empty message, nor a message for one of them."""
    parquet = pytest.importorskip("pyarrow.parquet")
    where = tmp_path / "j"
    with journal.open(where, "a", topic="t") as writer:
        writer.append_many([b"", None, b"\\N", b"null"], keys=[b"k"] * 4)
    assert mq("tail", where, "-s", "t") == "\n\\N\n\\\\N\nnull\n"
    assert mq("tail", where, "-s", "t", "--format", "hex") == "\n\\N\n5c4e\n6e756c6c\n"
    assert mq("tail", where, "-s", "t", "--format", "raw") == "\\Nnull"
    rows = [json.loads(line) for line in mq("tail", where, "-s", "t", "--json").splitlines()]
    assert [row["value"] for row in rows] == ["", None, "\\N", "null"]
    assert [row["key"] for row in rows] == ["k"] * 4
    mq("export", where, tmp_path / "f.parquet", "-s", "t")
    assert parquet.read_table(tmp_path / "f.parquet").column("value").to_pylist() == [
        b"", None, b"\\N", b"null"]
    assert "4 messages" in mq("verify", where)


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
            "sys.dont_write_bytecode = True;"       # Python would leave modules cut short
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
    ("replay", ".", "push"), ("serve", "."), ("record", "x", "push"),
    ("record", "x", "pull", "--bind", "tcp://127.0.0.1:0", "--retain-bytes", "much"),
    ("record", "x", "pull", "--bind", "tcp://127.0.0.1:0", "--segment-age", "0"),
    ("groups", ".", "--set", "a", "x"), ("tail", ".", "--key", "none")])
def test_wrong_arguments(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with journal.open(".", "a"):
        pass
    assert "rror" in mq(*args, status=2)


def test_serving_strangers_must_be_meant(where):
    """An address of the network wants keys, TLS, or the word."""
    answer = CliRunner().invoke(cli, ["journal", "serve", str(where), "--bind", "tcp://*:0"])
    assert answer.exit_code != 0
    assert "exposed" in str(answer.exception) and "--insecure" in str(answer.exception)


def test_serving_with_keys(start, where, tmp_path, mq_context):
    pair, stranger = library.security.curve_keypair(), library.security.curve_keypair()
    library.security.save_certificate(tmp_path / "server.key", library.security.curve_keypair())
    own = library.security.load_certificate(tmp_path / "server.key_secret")
    library.security.save_certificate(tmp_path / "ann.key", pair)
    server = start(*command("journal", "serve", where, "--bind", "tcp://0.0.0.0:0", "--every", 0,
                            "--key", tmp_path / "server.key_secret", "--allow",
                            tmp_path / "ann.key"))
    url = server.line().replace("0.0.0.0", "127.0.0.1")
    with journal.open(f"{url}/t", context=mq_context, security=library.security.Curve(
            own.public, secret_key=pair.secret)) as reader:
        assert reader.end == 6
    with pytest.raises(library.RecvTimeout):
        journal.open(f"{url}/t", context=mq_context, timeout=0.5, security=library.security.Curve(
            own.public, secret_key=stranger.secret))
    status, out, err = run(*command("journal", "tail", f"{url}/t", "-n", 1, "--server-key",
                                    tmp_path / "server.key", "--key", tmp_path / "ann.key_secret"))
    assert (status, out) == (0, b"last\n"), err
    assert server.end(signal.SIGINT)[0] == 130


def test_recording_with_retention(start, tmp_path, mq_context):
    """Small segments, of which only the newest are kept."""
    recorder = start(*command("journal", "record", tmp_path / "j", "rep", "--bind",
                              "tcp://127.0.0.1:0", "--every", 0, "--segment-bytes", "4KiB",
                              "--segment-age", "1h", "--retain-bytes", "16KiB", "--retain-age",
                              "7d"))
    with library.Req(context=mq_context, connect=recorder.line(), recv_timeout=20) as req:
        for _ in range(60):
            req.request(bytes(1000))
    end = time.monotonic() + 20
    with journal.open(tmp_path / "j") as reader:
        while reader.first <= 20:               # the writer removes files in the background
            assert time.monotonic() < end
        assert reader.end == 60
    assert recorder.end(signal.SIGINT)[0] == 130


def test_serving_with_an_encrypted_tls_key(start, where, tmp_path, authority, mq_context):
    """The password comes out of a file, not out of an argument that all users of a machine see."""
    files = authority.pairs["server"].save(tmp_path, "locked", "sesame")
    (tmp_path / "password").write_text("sesame\nnot this\n")
    server = start(*command("journal", "serve", where, "--bind", "tls+tcp://0.0.0.0:0", "--every",
                            0, "-o", f"tls_cert={files['tls_cert']}", "-o",
                            f"tls_key={files['tls_key']}", "--tls-key-password-file",
                            tmp_path / "password"))
    url = server.line().replace("0.0.0.0", "127.0.0.1")
    with journal.open(f"{url}/t", context=mq_context, **authority.ca,
                      tls_hostname="localhost") as reader:
        assert reader.end == 6
    status, out, err = run(*command("journal", "tail", f"{url}/t", "-n", 1, "-o",
                                    f"tls_ca={authority.ca['tls_ca']}", "-o",
                                    "tls_hostname=localhost"))
    assert (status, out) == (0, b"last\n"), err
    assert server.end(signal.SIGINT)[0] == 130


def test_record_is_closed_to_strangers(tmp_path):
    """Who writes fills the disk and forges stamps: as `serve`, it needs keys, TLS or a word."""
    from mqcore.errors import UsageError

    answer = CliRunner().invoke(cli, ["journal", "record", str(tmp_path / "j"), "pull", "--bind",
                                      "tcp://*:0"])
    assert isinstance(answer.exception, UsageError) and not (tmp_path / "j").exists()
    assert "could fill this disk" in str(answer.exception)
    assert "--insecure" in answer.exception.hint


# -- gaps ------------------------------------------------------------------------------------------

def answered(*args, status=0):
    answer = CliRunner().invoke(cli, ["journal", *map(str, args)])
    assert answer.exit_code == status, answer.output
    return answer


@pytest.mark.keeps(threads=16, why="pyarrow's pool")
def test_commands_go_on_behind_gaps_and_say_so(tmp_path):
    where = repaired(tmp_path / "j")
    answer = answered("tail", where, "--from", 0)
    assert answer.stdout.split() == [str(i) for i in LEFT]
    assert "messages 0 to 9 are gone" in answer.stderr
    assert "messages 30 to 39 are gone" in answer.stderr
    answer = answered("export", where, tmp_path / "f.parquet")
    assert "messages 30 to 39 are gone" in answer.stderr and "40 messages" in answer.stderr
    from pyarrow import parquet
    assert parquet.read_table(tmp_path / "f.parquet")["offset"].to_pylist() == LEFT
    with library.Pull(bind="tcp://127.0.0.1:0") as pull:
        answer = answered("replay", where, "push", "--connect", pull.endpoints[0].url, "--speed", 0)
        assert [int(pull.recv(timeout=20)) for _ in LEFT] == LEFT
    assert "40 messages, 10 are gone" in answer.stderr


def test_commands_go_on_behind_damage_if_asked(tmp_path):
    where = tmp_path / "j"
    with journal.open(where, "a") as writer:
        for i in range(4):
            writer.append_many([b"%d" % (10 * i + k) for k in range(10)])
            writer.commit()
    [path] = (where / "default" / "0").glob("*.mqj")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"MQB1", 1000) + 20] ^= 1         # a header of a block
    path.write_bytes(raw)
    answer = answered("tail", where, "--from", 0, status=1)
    assert isinstance(answer.exception, journal.JournalCorrupt)
    answer = answered("tail", where, "--from", 0, "--gaps", "salvage")
    found = [int(line) for line in answer.stdout.split()]
    assert len(found) == 30 and found == sorted(found)
    assert answer.stderr.count("are gone") == 1 and path.read_bytes() == raw


@pytest.mark.keeps(threads=16, why="pyarrow's pool")
def test_commands_end_at_gaps_if_asked(tmp_path):
    where = repaired(tmp_path / "j")
    answer = answered("tail", where, "--from", 0, "--gaps", "raise", status=1)
    assert answer.stdout == "" and isinstance(answer.exception, journal.OffsetGone)
    answer = answered("export", where, tmp_path / "f.parquet", "--gaps", "raise", status=1)
    assert isinstance(answer.exception, journal.OffsetGone)
    assert not (tmp_path / "f.parquet").exists()
