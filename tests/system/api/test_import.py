"""`import mqcore` imports what it names only when a program uses it."""

import ast
import importlib
import json
import pickle
import subprocess
import sys
from typing import get_args

import pytest
from sources import ROOT

import mqcore as mq
from mqcore import events, journal


def ask(program: str) -> object:
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=200, check=True)
    return json.loads(done.stdout)


def test_importing_the_package_imports_nothing_else():
    more = ask("import sys, json; import importlib; before = set(sys.modules); import mqcore;"
               "print(json.dumps(sorted(set(sys.modules) - before)))")
    assert more == ["mqcore"]


def test_a_name_imports_what_it_needs_and_no_more():
    found = ask("import sys, json, mqcore; mqcore.Timeout;"
                "print(json.dumps([m for m in sys.modules if m.startswith('mqcore')]))")
    assert sorted(found) == ["mqcore", "mqcore.errors"]


def test_a_socket_imports_nothing_that_only_some_programs_use():
    rare = ["mqcore.certificates", "mqcore.api.explain", "mqcore.api.recorder",
            "mqcore.journal", "mqcore.zmq", "mqcore.nng", "mqcore.transports.ws", "numpy",
            "asyncio", "ssl", "difflib"]
    program = ("import sys, json, mqcore as mq\n"
               "with mq.Pull(bind='inproc://a') as jobs, mq.Push(connect='inproc://a') as push:\n"
               "    push.send(b'x', timeout=20)\n"
               "    jobs.recv(timeout=20)\n"
               f"print(json.dumps([name for name in {rare} if name in sys.modules]))")
    assert ask(program) == []


def test_every_public_name_is_found_by_dir_and_by_star():
    names = ask("import json, mqcore\nlisted = set(dir(mqcore))\nfrom mqcore import *\n"
                "print(json.dumps([[n, n in listed, n in globals()] for n in mqcore.__all__]))")
    assert len(names) > 75
    assert [row for row in names if row[1:] != [True, True]] == []


def test_a_name_is_looked_up_once():
    mq.Pull  # noqa: B018
    assert vars(mq)["Pull"] is mq.Pull


@pytest.mark.parametrize("name", ["errors", "events", "options", "security"])
def test_modules_with_public_names_are_attributes(name):
    assert ask(f"import json, mqcore; print(json.dumps(mqcore.{name}.__name__))") \
        == f"mqcore.{name}"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'mqcore' has no attribute 'Pusch'"):
        mq.Pusch  # noqa: B018
    with pytest.raises(ImportError, match="Pusch"):
        from mqcore import Pusch  # noqa: F401


@pytest.mark.parametrize("name, place", [
    ("AuthHandler", "security"), ("Connected", "events")])
def test_a_name_that_is_elsewhere_says_where(name, place):
    with pytest.raises(AttributeError, match=f"it is in mqcore.{place}; write mqcore.{place}"):
        getattr(mq, name)
    assert getattr(getattr(mq, place), name).__name__ == name


@pytest.mark.parametrize("module, former, present", [
    ("mqcore", "Curve", "security.Curve"), ("mqcore", "curve_keypair", "security.curve_keypair"),
    ("mqcore", "Verdict", "security.AuthResult"), ("mqcore", "Asking", "security.AuthRequest"),
    ("mqcore", "load_certificate", "security.load_certificate"),
    ("mqcore.journal", "Writers", "journal.MultiWriter"),
    ("mqcore.journal", "partition_of", "journal.partition_of_key"),
    ("mqcore.journal", "partition_for", "journal.partition_of_message"),
    ("mqcore.journal", "partitions", "journal.store.topic_names.partitions")])
def test_a_former_name_works_and_warns(module, former, present):
    with pytest.warns(DeprecationWarning, match=f"{former} is mqcore.{present} now") as said:
        found = getattr(importlib.import_module(module), former)
    assert said[0].filename == __file__
    home, name = f"mqcore.{present}".rsplit(".", 1)
    assert found is getattr(importlib.import_module(home), name)


def test_every_former_name_is_there():
    for module in (mq, journal):
        for home, words in module._FORMER.items():
            for word in words.split():
                former, _, present = word.partition("=")
                assert hasattr(importlib.import_module(home), present or former), word
                assert former not in module.__all__


def test_former_names_of_members(tmp_path, ctx):
    journal.open(tmp_path, "a", topic="t").close()
    with journal.open(tmp_path, topic="t") as reader:
        with pytest.warns(DeprecationWarning, match=r"Reader.commit is Reader.commit_offset now"):
            reader.commit("g", 0)
        with pytest.warns(DeprecationWarning, match=r"Reader.committed_offset now"):
            assert reader.committed("g") == 0
        with pytest.raises(AttributeError, match="'Reader' object has no attribute 'comit'"):
            reader.comit("g", 0)
    with mq.Pull(context=ctx) as pull, mq.Push(context=ctx) as push:
        with pytest.warns(DeprecationWarning, match=r"Pull.ctx is Pull.context now"):
            assert pull.ctx is ctx
        endpoint = pull.bind("tcp://127.0.0.1:0")
        with pytest.warns(DeprecationWarning, match=r"Endpoint.wait_ready now"):
            push.connect(endpoint.url).wait(60)
        pinned = push.send_ref(bytearray(100_000))
        pull.recv()
        with pytest.warns(DeprecationWarning, match=r"Pinned.wait_done now"):
            pinned.wait(60)


def test_the_names_that_are_elsewhere_are_all_those_of_these_modules():
    for place, names in mq._ELSEWHERE.items():
        module = importlib.import_module(place)
        public = set(module.__all__) - set(mq.__all__)
        assert public - set(names.split()) <= {"Kind", "AuthCallback", "z85_decode", "z85_encode"}
        assert set(names.split()) <= set(module.__all__)


def test_the_kinds_of_events_are_the_classes():
    kinds = [cls.__name__ for cls in events.Event.__subclasses__()]
    assert sorted(get_args(events.Kind)) == sorted(kinds)
    assert set(events.__all__) == {"Event", "Kind", *kinds}
    assert all(cls.__doc__ for cls in events.Event.__subclasses__())


def test_what_was_pickled_in_one_process_is_read_in_another():
    """Where the other process has used no name of mqcore yet."""
    data = pickle.dumps([mq.RecvTimeout("late"), mq.Peer, mq.Stats()])
    assert ask("import json, pickle\n"
               f"error, peer, stats = pickle.loads({data!r})\n"
               "print(json.dumps([type(error).__name__, peer.__name__, type(stats).__name__]))") \
        == ["RecvTimeout", "Peer", "Stats"]


def test_the_stub_imports_each_name_from_where_it_is():
    """The stub states for type checkers what the table in mqcore/__init__.py states at run time."""
    from mqcore import _HOME_OF

    stub = ast.parse((ROOT / "mqcore" / "__init__.pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mqcore."):
            for alias in node.names:
                if alias.asname:
                    assert _HOME_OF[alias.name] == node.module, alias.name
