"""build/layout, which setup.py keeps for Cython and mypy: each setup.py run finds it as it should
be, and what reads it at the same time never finds it missing. And the names: what has two meanings
is in a table here, with the reason."""

import ast
import importlib
import inspect
import os
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from sources import ROOT, tracked

import mqcore as mq
from mqcore import events, journal, security
from mqcore.api.patterns import CLASSES

PARTS = {"ROOMS", "DEVELOPMENT", "SHOWN", "LAYOUT", "link_layout"}


def link_layout(folder, monkeypatch):
    """setup.py's own function, in another folder; the rest of setup.py would build something."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", None) in PARTS
                 or isinstance(node, ast.Assign) and node.targets[0].id in PARTS]
    names = {"os": os, "shutil": shutil, "Path": Path}
    exec(compile(tree, "setup.py", "exec"), names)
    monkeypatch.chdir(folder)
    return names["link_layout"]


def test_only_what_has_changed_is_touched(tmp_path, monkeypatch):
    for name in ("mqcore/api/a.py", "mqcore/old/b.pxd", "mqcore/c.so", "transports/tcp.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    link = link_layout(tmp_path, monkeypatch)

    def shown():
        return {path.relative_to(layout).as_posix(): (path.read_text(), path.lstat().st_ino)
                for path in layout.rglob("*") if path.is_file()}
    layout = tmp_path / link()
    first = shown()
    assert {name: text for name, (text, _) in first.items()} == {
        "mqcore/api/a.py": "mqcore/api/a.py", "mqcore/old/b.pxd": "mqcore/old/b.pxd",
        "mqcore/transports/tcp.py": "transports/tcp.py"}
    link()
    assert shown() == first
    (tmp_path / "mqcore/old/b.pxd").rename(tmp_path / "mqcore/api/b.pxd")
    (tmp_path / "mqcore/old").rmdir()
    link()
    second = shown()
    assert second.keys() == {"mqcore/api/a.py", "mqcore/api/b.pxd", "mqcore/transports/tcp.py"}
    assert second["mqcore/api/a.py"] == first["mqcore/api/a.py"]
    assert not (layout / "mqcore" / "old").exists()


# -- names ----------------------------------------------------------------------------------------

HALVES = "one thing: its native half and its Python half"
PLUGIN = "one thing: the contract of a plug-in, and its form for plug-ins in Python"
COMPAT = "the other library's word for its own thing, in its interface"
OURS = "the same task for another package: {}"
# a module's name that several packages have: why it still has one meaning
MODULES = {
    "otel": "OpenTelemetry: its metrics, its spans",
    "runner": "what runs plug-ins in Python, and what runs a bridge",
    "address": "addresses: nng's, and those of bridges",
    "arguments": "checks of what callers give: to sockets, to queues",
    "batch": "messages that go together: as arrays, and on their way to the kernel",
    "clock": "where the time comes from: the system's, and a test's",
    "codec": OURS.format("a protocol's bytes and messages"),
    "columns": OURS.format("columns of arrays into a log, and of Spark's rows"),
    "components": "what runs beside sockets: registered, asked for, shown by a command",
    "connection": "a connection: to a peer, to a journal server",
    "core": OURS.format("the extension class behind a package's faces"),
    "device": "`mqcore.device()`, and the command `mq device`",
    "endpoints": COMPAT,
    "serving": OURS.format("a server of HTTP in a thread"),
    "errors": OURS.format("exceptions"),
    "events": "one thing: the classes, and the public module that names them",
    "exchange": "a command's use of a socket, and a request with its answer over HTTP",
    "filter_ops": PLUGIN,
    "hooks": HALVES,
    "gil": OURS.format("when the GIL is let go"),
    "inproc": "one transport: its plug-in, its control plane, its data plane",
    "keys": "CURVE keys, and the options of the commands that take them",
    "message": HALVES,
    "notify": "something has changed: a file, a socket in a poller",
    "options": OURS.format("options"),
    "pattern": PLUGIN,
    "peers": "a socket's peers: as connections, and as a pattern's table",
    "pipe": "one thing: what patterns call, and what engines do",
    "pipes": COMPAT,
    "plane": HALVES,
    "plugin": "the command `mq plugin`, and pytest's plug-in",
    "poller": "`mqcore.Poller`, and the contract of epoll",
    "raw": OURS.format("bytes without a protocol: a codec, and a test's peer"),
    "recorder": HALVES,
    "replay": OURS.format("the use of a journal's records from the start"),
    "requests": OURS.format("what a server answers, as typed structs"),
    "client": "who asks a server or a monitored context",
    "place": "folders, and what is in them",
    "route": "where something leads: an address to its transport, a path to its socket",
    "security": "mechanisms: as users state them, and as a codec reads them",
    "server": "the journal's server, and ZeroMQ's pattern SERVER",
    "sockaddr": COMPAT,
    "socket": COMPAT,
    "strangers": OURS.format("what is not of the project"),
    "strategy": PLUGIN,
    "stream": "bytes in order: the pump, ZeroMQ's pattern STREAM, Spark's word",
    "tables": OURS.format("state that several modules share"),
    "tls": COMPAT,
    "watch": "what looks for changes: at descriptors, and at what a test leaks",
    "words": OURS.format("a header of 32-bit words"),
    "survey": HALVES,
}
# a public name that several of our modules have
PUBLIC = {
    "HandshakeFailed": "an exception in mqcore, and the event of it in mqcore.events",
    "Dropped": "an event, and what a journal's recovery dropped: lost data in both",
}
# every public name that contains a word which had several meanings, and what the word means there
WORDS = {
    "context": {"Context": "the owner of sockets and I/O threads", "ContextClosed": "of it",
                "context": "a socket's Context", "new_context": "pynng's word for an SP context",
                "tls_context": "ssl's word for an ssl.SSLContext",
                "trace_context": "W3C's word for the trace that a message carries"},
    "record": {"Records": "messages of a journal, as arrays", "append_records": "takes these"},
    "wire": {"wire": "the protocol that a peer speaks"},
    "raw": {"raw": "nanomsg's word: a socket that shows its envelopes"},
    "stream": {"Stream": "ZeroMQ's pattern STREAM", "EventStream": "what events() returns",
               "streams": "of a journal server: records on their way to a reader",
               "streams_per_peer": "of these"},
    "commit": {"commit": "make a journal durable", "acommit": "its twin",
               "commit_offset": "store the place of a consumer group, as in Kafka",
               "acommit_offset": "its twin", "committed_offset": "that place",
               "acommitted_offset": "its twin"},
    "backlog": {"backlog": "how many may wait: connections at a listener, events in a stream"},
    "held": {"held": "jobs that consumers of a work queue have and have not settled"},
    "session": {}, "owed": {}, "verdict": {}, "judge": {}, "asking": {},
}
# the field of a C struct: what it holds, where several structs have one of that name
FIELDS = {
    "held": {"mqcore/link/engine.pxd": "a message that the engine had no room for",
             "mqcore/sock/sock.pxd": "pipes that the pattern does not know",
             "mqcore/spi/message_engine.pxd": "bytes that the kernel has not got"},
    "owed": {"mqcore/sock/sock.pxd": "bytes not yet published",
             "mqcore/spi/pipe.pxd": "requests without an answer",
             "mqcore/wire/codec.pxd": "commands that keep their place among messages",
             "protocols/routing/asks.pxd": "whether a request counts in Pipe.owed"},
}
MIRRORED = "mqcore/zmq/", "mqcore/cluster/"     # pyzmq's names; a package that is still being made
SOURCE = {".py", ".pyx", ".pxd"}


def places_of_modules():
    found = defaultdict(set)
    for path in tracked(ROOT):
        where = path.relative_to(ROOT).as_posix()
        if where.startswith(("mqcore/", "transports/", "protocols/")) and path.suffix in SOURCE \
                and not where.startswith(MIRRORED) and path.stem not in ("includes", "__init__"):
            found[path.stem].add(path.parent)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_a_module_that_shares_its_name_has_a_reason():
    several = places_of_modules()
    without = {name: sorted(place.relative_to(ROOT).as_posix() for place in several[name])
               for name in several.keys() - MODULES.keys()}
    assert not without, f"another name, or a row in MODULES: {without}"
    assert MODULES.keys() <= several.keys(), "rows of MODULES that are no longer needed"


def test_a_public_name_has_one_home():
    homes = defaultdict(set)
    for module in (mq, events, security, journal):
        for name in module.__all__:
            homes[name].add(getattr(module, name))
    assert {name for name, things in homes.items() if len(things) > 1} == PUBLIC.keys()


def public_names():
    for module in (mq, events, security, journal):
        for name in module.__all__:
            thing = getattr(module, name)
            yield name
            yield from dir(thing) if isinstance(thing, type) else ()


@pytest.mark.parametrize("word, known", WORDS.items())
def test_a_word_of_public_names_has_one_meaning(word, known):
    found = {name for name in public_names() if word in name.lower() and not name.startswith("_")}
    assert found == known.keys()


def test_a_context_is_a_context():
    """`context` is the Context everywhere; an SP context is made by new_context(), pynng's word."""
    for pattern, cls in CLASSES.items():
        assert isinstance(inspect.getattr_static(cls, "context"), property), pattern
        assert hasattr(cls, "new_context") == (
            pattern in ("req", "rep", "surveyor", "respondent", "sub"))


@pytest.mark.parametrize("word, known", FIELDS.items())
def test_a_field_with_an_ambiguous_name_is_known(word, known):
    declared = re.compile(rf"^    (?!cdef )[\w\[\]]+(?: \*|\* | ){word}\b *(#.*)?$", re.MULTILINE)
    found = {path.relative_to(ROOT).as_posix() for path in tracked(ROOT) if path.suffix == ".pxd"
             and declared.search(path.read_text())}
    assert found <= known.keys(), f"another name, or a row in FIELDS: {found - known.keys()}"


TWINS = ["mqcore.Endpoint", "mqcore.Device", "mqcore.Pinned", "mqcore.EventStream", "mqcore.Poller",
         "mqcore.Context", "mqcore.Message", "mqcore.journal.server.server.Server",
         "mqcore.journal.Reader", *(f"mqcore.{cls.__name__}" for cls in CLASSES.values())]


@pytest.mark.parametrize("path", TWINS)
def test_an_awaitable_call_is_a_and_its_name(path):
    """The law has no exception: `a` + the name of a call that is there. `wait_ready` and
    `await_ready` obey it; `wait` could not, since `await` is a word of the language."""
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    for twin, function in inspect.getmembers(cls, inspect.iscoroutinefunction):
        if not twin.startswith("_"):
            assert twin[0] == "a" and not twin.endswith("_"), twin
            assert hasattr(cls, twin[1:]), f"{twin} without {twin[1:]}"
    assert not hasattr(cls, "wait"), "a wait whose twin cannot be called await"
