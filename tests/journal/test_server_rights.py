"""Rights: a reader of a journal server sees and does what it was granted, whatever it asks."""

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.journal.rights import load
from mqcore.security import Curve, curve_keypair

LIMIT = 20.0
Rights = journal.Rights
SERVER, ALICE, BOB = curve_keypair(), curve_keypair(), curve_keypair()


@pytest.fixture
def where(tmp_path):
    for topic in ("orders", "flights-eu", "flights-us", "salaries"):
        with journal.open(tmp_path / "j", "a", topic=topic) as writer:
            writer.append_many([b"%d" % i for i in range(10)])
    return tmp_path / "j"


@pytest.fixture
def client(ctx):
    def options(keys):
        return {"context": ctx, "timeout": LIMIT,
                "security": Curve(server_key=SERVER.public, secret_key=keys.secret)}
    return options


@pytest.fixture
def granted(where, serve):
    """The address of a server that knows Alice and Bob by their keys."""
    rights = {"alice": Rights(("orders", "flights-*"), ("dash*",)), "*": Rights("flights-??")}
    server = serve(where, "tcp://127.0.0.1:0", groups=True, rights=rights, security=Curve(
        secret_key=SERVER.secret, allow={ALICE.public: "alice", BOB.public: "bob"}))
    return server.urls[0]


def test_a_list_has_what_one_may_read(granted, client):
    def seen(keys):
        return [row.topic for row in journal.list_partitions(granted, **client(keys))]

    for _ in range(2):
        assert seen(ALICE) == ["flights-eu", "flights-us", "orders"]
        assert seen(BOB) == ["flights-eu", "flights-us"]


QUESTIONS = {
    "read": lambda log: log.read(0), "end": lambda log: log.end, "first": lambda log: log.first,
    "durable": lambda log: log.durable, "at": lambda log: log.at(0.0),
    "size": lambda log: log.stored_bytes(0, 1), "groups": lambda log: log.groups(),
    "committed": lambda log: log.committed_offset("dashboard"),
    "commit": lambda log: log.commit_offset("dashboard", 3),
    "follow": lambda log: next(iter(log.follow(0, timeout=LIMIT))),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("topic", ["salaries", "not there"])
def test_every_question_about_another_topic_is_denied(granted, client, question, topic):
    """In the same words, whether the topic is there or not."""
    with pytest.raises(journal.JournalDenied, match=f"may not read topic '{topic}'") as caught, \
            journal.open(granted, topic=topic, **client(ALICE)) as log:
        QUESTIONS[question](log)
    assert isinstance(caught.value, PermissionError) and "--rights" in caught.value.hint
    with journal.open(granted, topic="orders", **client(ALICE)) as log:
        QUESTIONS[question](log)


def test_groups(granted, client, where):
    with journal.open(granted, topic="flights-eu", **client(ALICE)) as log:
        log.commit_offset("dashboard", 4)
        with pytest.raises(journal.JournalDenied, match="commit consumer group 'other'"):
            log.commit_offset("other", 4)
    with journal.open(granted, topic="flights-eu", **client(BOB)) as log:
        assert log.groups() == {"dashboard": 4}
        with pytest.raises(journal.JournalDenied, match="group 'dashboard'"):
            log.commit_offset("dashboard", 10)
        assert log.committed_offset("dashboard") == 4
    assert not (where / "flights-eu" / "0" / "groups" / "other").exists()


def test_members(granted, client):
    with journal.join(granted, "dashboard", topic="orders", **client(ALICE)) as member:
        assert next(iter(member)) is not None
    for topic, group in (("orders", "theirs"), ("salaries", "dashboard")):
        with pytest.raises(journal.JournalDenied), \
                journal.join(granted, group, topic=topic, **client(ALICE)) as member:
            next(iter(member))


def test_by_a_function(where, serve, ctx, caplog):
    """Asked once for each connection; one that fails, or returns something else, grants nothing."""
    asked = []

    def rights(peer):
        asked.append(peer)
        if len(asked) == 2:
            raise RuntimeError("no directory")
        return (Rights("*"), None, "everything", None)[len(asked) - 1]

    url = serve(where, "tcp://127.0.0.1:0", rights=rights).urls[0]
    with journal.open(url, topic="orders", timeout=LIMIT, context=ctx) as log:
        assert len(log.read(0)) == log.end == 10
    assert isinstance(asked[0], mq.Peer) and len(asked) == 1
    for said in ("no directory", "gave 'everything'", ""):
        with pytest.raises(journal.JournalDenied), \
                journal.open(url, topic="orders", timeout=LIMIT, context=ctx) as log:
            log.read(0)
        assert said in caplog.text
    assert len(asked) == 4


@pytest.mark.parametrize("given", ["alice", 3, {"alice": "*"}, {3: Rights("*")},
                                   {None: Rights("*")}])
def test_what_is_no_rights(where, serve, given):
    with pytest.raises(mq.OptionError, match="rights="):
        serve(where, "tcp://127.0.0.1:0", rights=given)


@pytest.mark.parametrize("patterns", [3, None, ("a", 3), b"x", {"a": 1}])
def test_what_is_no_pattern(patterns):
    with pytest.raises(mq.OptionError, match="read="):
        Rights(patterns)


def test_a_file(tmp_path):
    path = tmp_path / "rights.toml"
    path.write_text('[alice]\nread = ["orders", "log-*"]\ncommit = "dash"\n["*"]\n')
    assert load(path) == {"alice": Rights(("orders", "log-*"), "dash"), "*": Rights()}
    path.write_text('["*"]\nwrite = "orders"\n')
    assert load(path) == {"*": Rights(write="orders")}
    for text, why in (("[alice", "cannot be read"), ("alice = 3", "'alice' is not known"),
                      ("[alice]\nlist = []", "'list' is not known"),
                      ("[alice]\nread = [3]", "user 'alice': read="),
                      ("[alice.read]\na = 1", "user 'alice': read="),
                      ("a = " + "[" * 10000, "cannot be read"),
                      ("a = " + "1" * 5000, "cannot be read")):
        path.write_text(text)
        with pytest.raises(mq.OptionError, match=why):
            load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(mq.OptionError, match="cannot be read"):
        load(path)
