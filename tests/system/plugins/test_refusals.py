"""Bad plug-ins, installed by pip like good ones: each is refused with an error that names its
distribution and the remedy, and harms no other."""

import json
import re

import pytest

PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1.5"
[tool.setuptools]
py-modules = {modules}
"""
GOOD = """
from mqcore.spi.transport import Listening, StreamTransport, start_connect
import socket

class Good(StreamTransport):
    scheme = "{name}"
    doc = "a good one\\nsecond line"

    def listen(self, address, options):
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.bind(b"\\0" + address.encode())
        sock.listen()
        return Listening((sock,), address)

    def connect(self, target, options):
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        start_connect(sock, b"\\0" + target.encode())
        return sock

transport = Good()
"""
RESOLVER = """
from mqcore.spi.resolver import Resolver

class R(Resolver):
    scheme = "{name}"

resolver = R()
"""
CLASS = "class transport:\n    abi = {abi}\n    kind = '{kind}'\n    scheme = '{name}'\n"


def good(name, more=""):
    return GOOD.format(name=name) + more


# distribution: {(group, name): its module}
DISTRIBUTIONS = {
    "mq-bad": {
        ("transports", "lost"): "import no_such_module_anywhere",
        ("transports", "leaver"): "raise SystemExit(3)",
        ("transports", "foreign"): "raise ValueError('mqcore.x.Y size changed, may indicate binary "
                                   "incompatibility. Expected 32 from C header, got 40')",
        ("transports", "older"): good("older", "Good.abi = 0"),
        ("transports", "newer"): good("newer", "Good.abi = 99"),
        ("transports", "bare"): CLASS.format(abi=1, kind="stream", name="bare"),
        ("transports", "magic"): CLASS.format(abi=1, kind="magic", name="magic"),
        ("transports", "masked"): good("other"),
        ("transports", "moody"): good("moody", "Good.abi = property(lambda self: 1 // 0)"),
        ("transports", "rows"): good("rows", "Good.options = (('colour', 'float', 1, ''),)"),
        ("transports", "taker"): good("taker", "Good.options = (('linger', 'int', 7, ''),)"),
        ("transports", "vague"): good("vague", "Good.unavailable = lambda self: 1 // 0"),
        ("resolvers", "halved"): "class resolver:\n    abi = 1\n    scheme = 'halved'\n",
    },
    "mq-one": {
        ("transports", "fine"): good("fine"),
        ("transports", "twin"): good("twin"),
        ("resolvers", "both"): RESOLVER.format(name="both"),
        ("protocols", "lost"): "import no_such_module_anywhere",
    },
    "mq-two": {
        ("transports", "twin"): good("twin"),
        ("transports", "both"): good("both"),
    },
}
ATTRIBUTE = {"transports": "transport", "resolvers": "resolver", "protocols": "pattern"}


@pytest.fixture(scope="module")
def crowd(installed, tmp_path_factory):
    """All of the above, installed together."""
    folder = tmp_path_factory.mktemp("crowd")
    for name, plugins in DISTRIBUTIONS.items():
        project = folder / name
        project.mkdir()
        points = ""
        modules = []
        for (group, entry), text in plugins.items():
            module = f"{name.replace('-', '_')}_{group}_{entry}"
            (project / f"{module}.py").write_text(text)
            modules.append(module)
            points += f'[project.entry-points."mqcore.{group}"]\n' * (group not in points)
            points += f'{entry} = "{module}:{ATTRIBUTE[group]}"\n'
        (project / "pyproject.toml").write_text(
            PYPROJECT.format(name=name, modules=modules) + points)
    return installed.add_together(*(folder / name for name in DISTRIBUTIONS))


ASK = """
import json
import re
import mqcore as mq
found = {}
with mq.Context(linger=0) as context:
    for way, url in %r:
        with context.socket("pull") as sock:
            try:
                getattr(sock, way)(url)
            except mq.PluginError as error:
                found[url] = [str(error), error.distribution, error.remedy]
            except Exception as error:
                found[url] = [repr(error), "", ""]
    works = []
    for url in ("fine://%s", "tcp://127.0.0.1:0", "inproc://x"):
        with context.socket("pull") as pull, context.socket("push") as push:
            push.connect(pull.bind(url).url)
            push.send(b"works")
            works.append(pull.recv(timeout=20).decode())
print(json.dumps([found, works]))
"""
BIND, CONNECT = "bind", "connect"
REFUSED = {  # (what is called, its scheme): words of the error, the distribution, words of the cure
    (BIND, "lost"): ("does not import .*no_such_module_anywhere", "mq-bad 1.5", "reinstall"),
    (BIND, "leaver"): ("does not import .SystemExit: 3", "mq-bad 1.5", "reinstall or update"),
    (BIND, "foreign"): ("size changed", "mq-bad 1.5", "build it again for this mqcore"),
    (BIND, "older"): ("made for ABI 0, this mqcore has 1", "mq-bad 1.5", "build it again"),
    (BIND, "newer"): ("made for ABI 99, this mqcore has 1", "mq-bad 1.5", "update mqcore"),
    (BIND, "bare"): ("lacks .*listen, connect", "mq-bad 1.5", "update mq-bad"),
    (BIND, "magic"): ("lacks a kind of stream, .*'magic'", "mq-bad 1.5", "update mq-bad"),
    (BIND, "masked"): ("calls itself 'other'", "mq-bad 1.5", "update mq-bad"),
    (BIND, "moody"): ("cannot be asked .ZeroDivisionError", "mq-bad 1.5", "update mq-bad"),
    (BIND, "rows"): ("unknown type 'float'", "mq-bad 1.5", "update mq-bad"),
    (BIND, "taker"): ("and mqcore both claim the option 'linger'", "mq-bad 1.5", "update"),
    (CONNECT, "halved"): ("lacks check, may_block, look_up, watch", "mq-bad 1.5", "update mq-bad"),
    (BIND, "twin"): ("claimed by mq-(one|two) 1.5 and mq-", "mq-(one|two) 1.5 and mq-(two|one) 1.5",
                     "uninstall one of them"),
    (BIND, "both"): ("'both' of mq-two 1.5 is a resolver of mq-one 1.5", "mq-two 1.5 and mq-one",
                     "uninstall one of them"),
    (CONNECT, "both"): ("'both' of mq-(one|two) 1.5 is a", "mq-", "uninstall one of them"),
}


@pytest.fixture(scope="module")
def answers(installed, crowd):
    urls = [(way, f"{scheme}://{way}") for way, scheme in REFUSED]
    return installed.ask(ASK % (urls, installed.folder.name), crowd)


@pytest.mark.parametrize("case", REFUSED, ids=" ".join)
def test_it_is_refused_naming_distribution_and_remedy(answers, case):
    way, scheme = case
    text, distribution, remedy = answers[0][f"{scheme}://{way}"]
    for words, said in zip(REFUSED[case], (text, distribution, remedy), strict=True):
        assert re.search(words, said), said
    assert remedy in text


def test_no_other_is_harmed(answers):
    assert answers[1] == ["works"] * 3


def test_mq_info_lists_them_with_the_reason(installed, crowd):
    done = installed.mq("info", "--json", plugins=crowd)
    assert done.returncode == 1
    listed = {(row["kind"] + "s", row["name"], row["distribution"]): row
              for row in json.loads(done.stdout)["plugins"]}
    for name, plugins in DISTRIBUTIONS.items():
        for group, entry in plugins:
            row = listed[group.replace("protocols", "patterns"), entry, name]
            assert bool(row["refused"]) == (entry not in ("fine", "vague"))
            assert row["version"] == "1.5"
    assert not listed["transports", "tcp", "mqcore"]["refused"]
    fine = listed["transports", "fine", "mq-one"]
    assert fine["doc"] == "a good one" and fine["form"] == "stream" and "pid" in fine["gaps"]
    assert "ZeroDivisionError" in listed["transports", "vague", "mq-bad"]["unavailable"]


def test_mq_info_in_words(installed, crowd):
    done = installed.mq("info", plugins=crowd)
    assert done.returncode == 1 and done.stderr == ""
    assert "REFUSED" in done.stdout and "mq-bad 1.5" in done.stdout
    assert "not on this system: vague, it cannot say what it is" in done.stdout
    assert "fine" in done.stdout.partition("lacks")[2]
