"""The table of public calls: what is in the stubs is there, with its twin, and the other way
round."""

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import mqcore as mq
from mqcore import options
from mqcore.api.patterns import CLASSES
from mqcore.spi import registry

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("stubs", ROOT / "tools" / "stubs.py")
stubs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stubs)
STUB = ast.parse((ROOT / "mqcore/__init__.pyi").read_text())
OPTIONS = ast.parse((ROOT / "mqcore/_options.pyi").read_text())
STUBS = {node.name: node for node in (*OPTIONS.body, *STUB.body) if isinstance(node, ast.ClassDef)}
TWINS = """bind connect unbind disconnect send send_parts send_many send_batch send_ref recv
recv_parts recv_msg recv_into recv_many recv_batch wait_peers close""".split()
PLAIN = """peers stats events explain fileno messages batches __iter__ __aiter__ __enter__ __exit__
    __aenter__ __aexit__""".split()
OWN = {"req": ["request", "request_msg"], "router": ["send_to"], "stream": ["send_to"],
       "pair1": ["send_to"], "server": ["send_to"], "peer": ["send_to", "connect_peer"],
       "dgram": ["send_to"], "pub": ["wait_subscribers"],
       "xpub": ["wait_subscribers"], "radio": ["wait_subscribers"]}
NAMED = ("router", "stream", "dgram")  # recv() would lose whose it is
ERRORS = """Error Timeout SendTimeout RecvTimeout WaitTimeout ConnectTimeout SocketClosed
ContextClosed Forked StateError NotSubscribed UsageError NotSupported AddressError
UnknownTransport BindError AddressInUse AddressNotAvailable AddressDenied PeerError NoSuchPeer
PeerGone HandshakeFailed RemoteRefused OptionError MessageTooLarge PluginError
HookError""".split()
NAMES = """Context Socket Pair Pair1 Dealer Push Pull XSub Req Rep Router Stream Pub XPub Sub Radio
Poller Dish Bus Surveyor Respondent Client Server Scatter Gather PeerSocket Channel Dgram
Message Batch Pinned Endpoint Peer Stats PeerStats CloseReport Event EventStream Device DeviceStats
BlockingCallWarning EventLog Histogram Hook HookMessage HookStats Ready PluginInfo socket poll
apoll device empty transports filters resolvers patterns strategies log_events
__version__""".split()


def members(name):
    """Everything a class of the stub has, inherited too: name -> nodes."""
    node = STUBS[name]
    found = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in STUBS:
            found.update(members(base.id))
    for item in node.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[item.name] = item
        elif isinstance(item, ast.AnnAssign):
            found[item.target.id] = item
    return found


@pytest.mark.parametrize("pattern", CLASSES)
def test_calls_and_twins(pattern):
    cls = CLASSES[pattern]
    for name in TWINS + OWN.get(pattern, []):
        assert callable(getattr(cls, name)), name
        twin = getattr(cls, "a" + name)
        assert inspect.iscoroutinefunction(twin), twin
        if hasattr(inspect.getattr_static(cls, name), "__code__"):
            ours = set(inspect.signature(getattr(cls, name)).parameters)
            assert ours == set(inspect.signature(twin).parameters), name
    for name in PLAIN:
        assert hasattr(cls, name), name


@pytest.mark.parametrize("pattern", CLASSES)
def test_stub_tells_the_truth(pattern):
    cls = CLASSES[pattern]
    plugin = registry.pattern(pattern)
    stub = members(cls.__name__)
    for name in stub:
        assert hasattr(cls, name), f"{name} is only in the stub"
    sends = pattern not in ("pull", "sub", "dish", "gather")
    receives = pattern not in ("push", "pub", "radio", "scatter")
    assert ("send" in stub, "recv_msg" in stub) == (sends, receives)
    assert ("recv" in stub) == (receives and pattern not in NAMED)
    for name in TWINS + PLAIN + OWN.get(pattern, []):
        absent = (name.startswith("send") and not sends) or (
            (name.startswith("recv") or name in ("messages", "batches", "__iter__", "__aiter__"))
            and not receives)
        absent |= pattern in NAMED and name in ("recv", "recv_into", "recv_many", "recv_batch",
                                                   "batches")
        assert (name in stub) == (not absent), name
        if name in TWINS and not absent:
            assert isinstance(stub["a" + name], ast.AsyncFunctionDef), name
    rows = options.table(registry.pattern_options(pattern)).values()
    for row in rows:
        if "socket" in row.scope and (not row.patterns or pattern in row.patterns):
            assert isinstance(stub[row.name], ast.AnnAssign), row.name
            assert ast.unparse(stub[row.name].annotation) == \
                ast.unparse(ast.parse(stubs.annotation(row)).body[0].value), row.name
            assert isinstance(inspect.getattr_static(cls, row.name).name, str)
    assert plugin.name == pattern


def test_stub_annotates_everything():
    for node in ast.walk(STUB):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.returns is not None, node.name
            args = node.args
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
                assert arg.arg in ("self", "cls") or arg.annotation is not None, (node.name,
                                                                                  arg.arg)


@pytest.mark.parametrize("name, render", stubs.FILES.items())
def test_the_stubs_are_what_the_script_makes(name, render):
    assert (ROOT / name).read_text() == render(), "run `python tools/stubs.py`"


@pytest.mark.parametrize("pattern", CLASSES)
def test_every_option_is_in_the_constructor(pattern):
    """Of each pattern, as mypy sees it: the TypedDict that its `__init__` unpacks."""
    node = members(CLASSES[pattern].__name__)["__init__"]
    taken = members(node.args.kwarg.annotation.slice.id)
    rows = options.table((*registry.link_options(), *registry.pattern_options(pattern))).values()
    own = {row.name for row in rows
           if "socket" in row.scope and (not row.patterns or pattern in row.patterns)}
    assert taken.keys() - own == {"bind", "connect"} and own <= taken.keys()


def test_every_option_and_every_call_has_its_text():
    """What editors show. The exceptions need none: fields, and what Python itself calls."""
    for name in ("EndpointOptions", "SocketAttributes", "PushOptions", "Push"):
        body = STUBS[name].body
        for item, following in zip(body, body[1:], strict=False):
            if isinstance(item, ast.AnnAssign):
                assert following.value.value.startswith(f"{item.target.id}: "), item.target.id
    without = [f"{cls}.{item.name}" for cls, node in STUBS.items() for item in node.body
               if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
               and not item.name.startswith("__") and ast.get_docstring(item) is None]
    assert without == []


def test_every_public_name_is_in_the_stub():
    known = set(STUBS) | {"__version__"} | {
        n.name for n in STUB.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in STUB.body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("mqcore."):
            known |= {alias.asname for alias in node.names}
    assert set(mq.__all__) <= known
    assert set(NAMES + ERRORS) == set(mq.__all__)
    for name in mq.__all__:
        assert getattr(mq, name) is not None


def test_errors_are_what_they_say():
    for name in ERRORS:
        assert issubclass(getattr(mq, name), mq.Error)
    for name, base in (("Timeout", TimeoutError), ("UsageError", TypeError), ("BindError", OSError),
                       ("NotSupported", NotImplementedError), ("AddressError", ValueError),
                       ("OptionError", ValueError), ("MessageTooLarge", ValueError)):
        assert issubclass(getattr(mq, name), base)


def test_import_brings_nothing_heavy():
    code = ("import sys, mqcore\nheavy = {'numpy', 'asyncio', 'trio', 'click', 'rich', 'pyarrow'}\n"
            "print(*sorted(heavy & set(sys.modules)))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200,
                         check=True)
    assert out.stdout.strip() == ""


def test_typing():
    """mypy accepts the sample, but for the lines that say what is wrong with them."""
    pytest.importorskip("mypy")
    sample = ROOT / "tests/layout/typing/sample.py"
    layout = ROOT / "build/layout"
    if not (layout / "mqcore/__init__.pyi").exists():
        pytest.skip("no build/layout")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
         "--cache-dir=/dev/null", str(sample)], capture_output=True, text=True, timeout=200,
        env={"MYPYPATH": str(layout), "PATH": ""}, cwd=ROOT / "tests")
    got = set()
    for line in run.stdout.splitlines():
        if ": error: " in line:
            where, text = line.split(": error: ")
            got.add((int(where.rsplit(":", 1)[1]), text.rsplit("[", 1)[1].rstrip("]")))
        elif ": note: " not in line:
            raise AssertionError(run.stdout + run.stderr)
    want = {(n, line.rsplit("refused: ", 1)[1].strip())
            for n, line in enumerate(sample.read_text().splitlines(), 1) if "# refused: " in line}
    assert got == want, run.stdout + run.stderr
