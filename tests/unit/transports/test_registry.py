"""Against real distributions: metadata folders on sys.path, as pip would leave them."""

import subprocess
import sys
import threading

import pytest

from mqcore import options
from mqcore.errors import PluginError, UnknownTransport, UsageError
from mqcore.spi import registry
from mqcore.spi.registry import Registry
from mqcore.spi.resolver import RESOLVER_ABI
from mqcore.spi.transport import TRANSPORT_ABI

GOOD = """
from mqcore.spi.transport import StreamTransport
class T(StreamTransport):
    scheme = "{name}"
    doc = "a good one"
    options = {rows}
transport = T()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(distribution, entry, module text): a distribution with one entry point."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution, entry, text, group="mqcore.transports", attribute="transport"):
        module = f"plug_{tmp_path.name}_{distribution}_{entry}".replace("-", "_")
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{distribution.replace('-', '_')}-2.5.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\n"
                                       "Version: 2.5\n")
        with open(info / "entry_points.txt", "a") as points:
            points.write(f"[{group}]\n{entry} = {module}:{attribute}\n")
        return module

    return install


@pytest.fixture
def transports():
    return Registry("transport", "mqcore.transports", TRANSPORT_ABI)


def good(name, rows=()):
    return GOOD.format(name=name, rows=repr(tuple(rows)))


def test_the_builtin_ones_are_found_like_any_other():
    assert registry.transport("tcp") is registry.transport("tcp")
    infos = {i.name: i for i in registry.transports()}
    assert {"tcp", "ipc", "inproc"} <= set(infos)
    assert infos["tcp"].distribution == "mqcore" and infos["tcp"].refused == ""
    assert infos["tcp"].target == "mqcore.transports.tcp:transport" and infos["tcp"].doc


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UnknownTransport, match="installed: .*tcp") as caught:
        registry.transport("tpc")
    assert "tcp" in caught.value.known
    with pytest.raises(UsageError, match="no pattern 'pusch' is installed; installed: .*push"):
        registry.pattern("pusch")


def test_a_plugin_of_another_distribution(install, transports):
    install("mq-good", "good", good("good", [("colour", "int", 3, "a number")]))
    plugin = transports.find("good")
    assert plugin.scheme == "good" and transports.find("good") is plugin
    row, = transports.options("good")
    assert row.name == "colour" and "url" in row.scope
    assert options.parse_query([("colour", "5")], extra=[row]) == {"colour": 5}


BAD = {
    "import": ("import no_such_module_here", "does not import .*no_such_module_here"),
    "raise": ("raise SystemError('boom')", "does not import .*boom"),
    "attribute": ("x = 1", "does not import .*transport"),
    "abi-missing": ("transport = object()", "has no attribute 'abi'"),
    "abi-new": (good("bad") + "T.abi = 99", "was made for ABI 99, this mqcore has 1; .*mqcore"),
    "abi-old": (good("bad") + "T.abi = 0", "was made for ABI 0, this mqcore has 1; update mq-bad"),
    "lacks": ("class transport:\n abi = 1\n kind = 'stream'\n scheme = 'bad'", "lacks resolve"),
    "kind": ("class transport:\n abi = 1\n kind = 'magic'", "lacks a kind of stream, engine, "),
    "name": (good("other"), "calls itself 'other'"),
    "rows": (good("bad", [("colour",)]), "has malformed option rows"),
    "row-type": (good("bad", [("colour", "float", 1, "")]), "unknown type 'float'"),
    "row-core": (good("bad", [("prio", "bytes", b"", "")]),
                 r"and mqcore both claim the option 'prio'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_is_refused_and_harms_no_other(install, transports, case):
    text, message = BAD[case]
    install("mq-bad", "bad", text)
    install("mq-fine", "fine", good("fine"))
    for _ in range(2):
        with pytest.raises(PluginError, match=message) as caught:
            transports.find("bad")
        assert "mq-bad 2.5" in str(caught.value) and caught.value.distribution == "mq-bad 2.5"
        assert caught.value.remedy and caught.value.remedy == caught.value.hint
    assert transports.find("fine") and transports.find("tcp")
    infos = {i.name: i for i in transports.infos()}
    assert infos["bad"].refused and infos["bad"].distribution == "mq-bad"
    assert not infos["fine"].refused and not infos["tcp"].refused


def test_a_name_claimed_twice_is_refused_naming_both(install, transports):
    install("mq-one", "twin", good("twin"))
    install("mq-two", "twin", good("twin"))
    with pytest.raises(PluginError) as caught:
        transports.find("twin")
    assert "mq-one" in str(caught.value) and "mq-two" in str(caught.value)
    refused = [i for i in transports.infos() if i.name == "twin"]
    assert {i.distribution for i in refused} == {"mq-one", "mq-two"}
    assert all(i.refused for i in refused)


def test_an_option_claimed_twice_is_refused_naming_both(install, transports):
    install("mq-one", "one", good("one", [("colour", "int", 3, "")]))
    install("mq-two", "two", good("two", [("colour", "bool", True, "")]))
    install("mq-three", "three", good("three", [("colour", "int", 3, "the same")]))
    transports.find("one")
    with pytest.raises(PluginError, match="mq-two 2.5 and mq-one 2.5 both claim .*'colour'"):
        transports.find("two")
    transports.find("three")


def test_patterns_carry_the_abi_of_their_header():
    from mqcore.spi.python.pattern import PYTHON_PATTERN_ABI

    assert registry.PYTHON_PATTERN_ABI == PYTHON_PATTERN_ABI
    text = (registry.__file__.rsplit("/", 1)[0]) + "/pattern.pxd"
    with open(text) as header:
        assert f"PATTERN_ABI = {registry.PATTERN_ABI} " in header.read()


PATTERN = """
from mqcore.spi.python.pattern import Pattern
class pattern(Pattern):
    "what it does"
    abi = 1
    name = {name!r}
    receives = True
    options = {rows}
"""


def pattern_of(name, rows=()):
    return PATTERN.format(name=name, rows=repr(tuple(rows)))


def test_a_pattern_plugin(install):
    patterns = Registry("pattern", "mqcore.protocols", registry.PATTERN_ABI)
    install("mq-pat", "talk", pattern_of("talk", [("loud", "bool", True, "shout")]),
            "mqcore.protocols", "pattern")
    assert patterns.find("talk").name == "talk"
    info, = [i for i in patterns.infos() if i.name == "talk"]
    assert (info.doc, info.refused, info.distribution) == ("what it does", "", "mq-pat")
    row, = patterns.options("talk")
    assert row.patterns == ("talk",) and row.scope == ("socket",)
    assert options.validate("loud", False, extra=[row], pattern="talk") is False


def test_a_pattern_may_restate_the_cores_row_about_it(install):
    patterns = Registry("pattern", "mqcore.protocols", registry.PATTERN_ABI)
    install("mq-req", "req2", pattern_of("req2", [("strict", "bool", False, "the same")]),
            "mqcore.protocols", "pattern")
    assert patterns.find("req2")


BAD_PATTERNS = {
    "import": ("import no_such_module_here", "does not import .*no_such_module_here"),
    "abi-missing": (pattern_of("bad").replace("abi = 1", "pass"), "has no attribute 'abi'"),
    "abi-new": (pattern_of("bad").replace("abi = 1", "abi = 99"),
                "was made for ABI 99, this mqcore has 1; update mqcore"),
    "other": ("class pattern: abi = 1", "is no pattern .*does not derive from .*Pattern"),
    "object": (f"class P: abi = {registry.PATTERN_ABI}\npattern = P()",
               "is no pattern .neither a class derived"),
    "name": (pattern_of("other"), "calls itself 'other'"),
    "route": (pattern_of("bad") + "    sends = True\n", "it sends, but has no route"),
    "useless": (pattern_of("bad") + "    receives = False\n", "neither sends nor receives"),
    "peer": (pattern_of("bad") + "    peers = ('push',)\n",
             "names the peer 'push', which would refuse it: a PUSH takes PULL, this announces "
             "nothing; update mq-bad"),
    "twice": (pattern_of("bad") + "    zmtp, number = 'PULL', 8\n",
              "says that PULL has number 8, which is 7"),
    "operation": ("from mqcore.testing.native.pattern_bench import altered\n"
                  "from mqcore.protocols.push import pattern\n"
                  "pattern = altered(pattern, name='bad', without='recv')",
                  r"lacks the operation recv \(NULL\); update mq-bad"),
    "table-abi": ("from mqcore.testing.native.pattern_bench import altered\n"
                  "from mqcore.protocols.push import pattern\n"
                  "pattern = altered(pattern, name='bad', abi=0)",
                  "was made for ABI 0, this mqcore has .*; update mq-bad"),
    "option": (pattern_of("bad", [("prio", "bytes", b"", "")]), "both claim the option 'prio'"),
}


@pytest.mark.parametrize("case", BAD_PATTERNS)
def test_a_bad_pattern_is_refused_and_harms_no_other(install, case):
    patterns = Registry("pattern", "mqcore.protocols", registry.PATTERN_ABI)
    text, message = BAD_PATTERNS[case]
    install("mq-bad", "bad", text, "mqcore.protocols", "pattern")
    install("mq-fine", "fine", pattern_of("fine"), "mqcore.protocols", "pattern")
    for _ in range(2):
        with pytest.raises(PluginError, match=message) as caught:
            patterns.find("bad")
        assert "mq-bad 2.5" in str(caught.value) and caught.value.remedy
    assert patterns.find("fine").kind == "fine" and patterns.find("push").kind == "PUSH"


def test_a_pattern_claimed_twice_is_refused_naming_both(install):
    patterns = Registry("pattern", "mqcore.protocols", registry.PATTERN_ABI)
    install("mq-one", "twin", pattern_of("twin"), "mqcore.protocols", "pattern")
    install("mq-two", "push", pattern_of("push"), "mqcore.protocols", "pattern")
    install("mq-two", "twin", pattern_of("twin"), "mqcore.protocols", "pattern")
    with pytest.raises(PluginError, match="twin' is claimed by mq-.* and mq-"):
        patterns.find("twin")
    with pytest.raises(PluginError, match="push' is claimed by .*mqcore"):
        patterns.find("push")
    assert patterns.find("pull")


def test_a_row_that_patterns_share_names_them_all(install):
    patterns = Registry("pattern", "mqcore.protocols.test", registry.PATTERN_ABI)
    for name in ("one", "two", "bad"):
        text = pattern_of(name, [("probe", "bool", False, "d")])
        install(f"mq-{name}", name, text.replace("abi = 1", f"abi = {1 + (name == 'bad')}"),
                "mqcore.protocols.test", "pattern")
    row, = patterns.all_options()
    assert row.name == "probe" and row.patterns == ("one", "two")


RESOLVER = """
from mqcore.spi.resolver import Resolver
class R(Resolver):
    scheme = "{name}"
    options = {rows}
resolver = R()
"""


@pytest.fixture
def resolvers():
    return Registry("resolver", "mqcore.resolvers", RESOLVER_ABI)


def test_resolvers_are_found_like_the_others(install, resolvers):
    install("mq-good", "good", RESOLVER.format(name="good", rows=[("zone", "text", "a", "where")]),
            "mqcore.resolvers", "resolver")
    assert resolvers.find("good").scheme == "good"
    assert [row.name for row in resolvers.options("good")] == ["zone", "refresh"]
    infos = {i.name: i for i in registry.resolvers()}
    assert infos["dns"].distribution == "mqcore" and infos["dns"].kind == "resolver"
    assert not infos["dns"].refused and not infos["file"].refused and infos["file"].doc
    assert registry.resolver("tcp") is None and registry.resolver("dns").scheme == "dns"


@pytest.mark.parametrize(("text", "message"), [
    ("resolver = 7", "has no attribute 'abi'"),
    (RESOLVER.format(name="bad", rows=()) + "R.abi = 99", "was made for ABI 99"),
    ("class resolver:\n abi = 1\n scheme = 'bad'", "lacks check, may_block, look_up, watch"),
    (RESOLVER.format(name="other", rows=()), "calls itself 'other'"),
    (RESOLVER.format(name="bad", rows=[("refresh", "int", 1, "")]),
     "and mqcore both claim the option 'refresh'"),
    ("import no_such_module_here", "does not import"),
])
def test_a_bad_resolver_harms_nobody(install, resolvers, text, message):
    install("mq-bad", "bad", text, "mqcore.resolvers", "resolver")
    with pytest.raises(PluginError, match=message) as caught:
        resolvers.find("bad")
    assert caught.value.distribution == "mq-bad 2.5" and caught.value.remedy
    assert resolvers.find("dns")
    refused = {i.name: i.refused for i in resolvers.infos()}
    assert refused["bad"] and not refused["dns"]


def test_a_scheme_of_a_transport_and_a_resolver_is_refused_as_both(install, transports, resolvers):
    transports.rival, resolvers.rival = resolvers, transports
    install("mq-one", "both", good("both"))
    install("mq-two", "both", RESOLVER.format(name="both", rows=()), "mqcore.resolvers", "resolver")
    for plugins, first, second in ((transports, "mq-one", "mq-two"),
                                   (resolvers, "mq-two", "mq-one")):
        with pytest.raises(PluginError, match=f"'both' of {first} 2.5 is a .* of {second} 2.5"):
            plugins.find("both")
        assert [i.refused != "" for i in plugins.infos() if i.name == "both"] == [True]
    assert transports.find("tcp") and resolvers.find("dns")


def test_many_threads_get_one_object(install, transports):
    install("mq-slow", "slow", "import time\ntime.sleep(0.05)\n" + good("slow"))
    found, go = [], threading.Barrier(8)

    def look():
        go.wait()
        found.append(transports.find("slow"))

    threads = [threading.Thread(target=look) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 8 and len(set(map(id, found))) == 1


def test_nothing_is_looked_up_before_it_is_needed():
    script = ("import sys, mqcore.spi.registry as r; "
              "assert 'mqcore.transports.tcp' not in sys.modules; r.transport('tcp'); "
              "assert 'mqcore.transports.ipc' not in sys.modules; print('ok')")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
