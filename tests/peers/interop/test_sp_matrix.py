"""Every pattern of SP with pynng, nngcat and nanocat: either binds, over tcp, ipc and ws, from one
byte to 16 MiB (pynng fails to receive an empty message), in each direction that the two have."""

import shutil
import subprocess

import pytest
from free import free_address
from waiting import until

pytest.importorskip("pynng")

SIZES = (1, 56, 57, 1024, 65536, (1 << 20) + 1)
LARGE = 16 << 20
LIMIT = 60
FITS = {
    "push": "Pull0", "pull": "Push0", "pub": "Sub0", "sub": "Pub0", "xpub": "Sub0", "xsub": "Pub0",
    "req": "Rep0", "dealer": "Rep0", "rep": "Req0", "router": "Req0", "pair": "Pair0",
    "pair1": "Pair1", "surveyor": "Respondent0", "respondent": "Surveyor0", "bus": "Bus0",
}
ID = b"\x80\0\1\2"
every = pytest.mark.parametrize("mine", FITS)


def body(size, seed=7):
    """Bytes that tell where they belong."""
    return bytes((seed + i * 31) % 251 for i in range(min(size, 1009))) * (size // 1009 + 1)


SLOWLY = [pytest.param(over, marks=pytest.mark.slow) for over in ("ipc", "ws")]


@pytest.fixture(params=["tcp", *SLOWLY])
def where(request, tmp_path):
    return {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/s",
            "ws": "ws://127.0.0.1:0/sp"}[request.param]


@pytest.fixture(params=["we_bind", "we_connect"])
def join(request, ctx, theirs, where):
    def make(mine):
        s = ctx.socket(mine, recv_timeout=LIMIT, send_timeout=LIMIT, wire="sp")
        if mine == "sub":
            s.subscribe(b"")
        elif mine == "xsub":
            s.send(b"\x01")
        p = theirs(FITS[mine])
        if FITS[mine] == "Sub0":
            p.subscribe(b"")
        if request.param == "we_bind":
            p.dial(s.bind(where).url, block=True)
        else:
            url = where.replace("127.0.0.1:0", free_address())
            p.listen(url)
            s.connect(url, wait=LIMIT)
        s.wait_peers(1, LIMIT)
        assert p.meets(LIMIT)               # it may still be about to see us
        assert [(x.wire, x.pattern) for x in s.peers()] == [
            ("sp", FITS[mine].rstrip("0").lower())]
        return s, p
    return make


@every
def test_messages(join, mine):
    s, p = join(mine)
    for size in SIZES:
        data = body(size)[:size]
        exchange(mine, s, p, data)
    totals = s.stats()
    assert not any(totals.dropped.values()), totals.dropped


def exchange(mine, s, p, data):
    """One message each way that the patterns have."""
    if mine in ("push", "pub", "xpub"):
        s.send(data)
        assert p.recv() == data
    elif mine in ("pull", "sub", "xsub"):
        p.send(data)
        assert s.recv() == data
    elif mine in ("pair", "pair1", "bus"):
        s.send(data)
        assert p.recv() == data
        p.send(data[::-1])
        assert s.recv() == data[::-1]
    elif mine in ("req", "surveyor"):
        s.send_parts([data[:1], data[1:]])      # joined
        assert p.recv() == data
        p.send(data[::-1])
        assert s.recv() == data[::-1]
    elif mine == "dealer":
        s.send_parts([ID, b"", data])
        assert p.recv() == data
        p.send(data[::-1])
        assert s.recv_parts() == [ID, b"", data[::-1]]
    elif mine == "router":
        p.send(data)
        *envelope, got = s.recv_parts()
        assert got == data and [len(part) for part in envelope] == [5, 4, 0]
        s.send_parts([*envelope, data[::-1]])
        assert p.recv() == data[::-1]
    else:
        p.send(data)
        got = s.recv_msg()
        assert got.body == data
        got.reply(data[::-1])
        assert p.recv() == data[::-1]


@pytest.mark.parametrize("where", ["ipc", "ws"], indirect=True)
@pytest.mark.parametrize("mine", ["push", "pull", "req", "rep"])
def test_transports(join, mine):
    test_messages(join, mine)


@pytest.mark.parametrize("mine", ["push", "rep", "sub"])
def test_large(join, mine):
    s, p = join(mine)
    exchange(mine, s, p, body(LARGE)[:LARGE])


def test_reconnects(ctx, theirs, tmp_path):
    """The other end dies and comes back at the same address: nothing has to be done here."""
    url = f"ipc://{tmp_path}/again"
    with ctx.socket("push", connect=url, wire="sp", reconnect=0.01, reconnect_max=0.02) as push:
        for round in range(3):
            pull = theirs("Pull0", listen=url)
            push.wait_peers(1, LIMIT)
            push.send(b"%d" % round)
            assert pull.recv() == b"%d" % round
            pull.close()
            until(lambda: not push.peers())


def test_multipart_is_joined_and_topics_match(ctx, theirs):
    with ctx.socket("pub", bind="tcp://127.0.0.1:0") as pub:
        sub = theirs("Sub0", dial=pub.endpoints[0].url, topics=[b"forex."])
        pub.wait_subscribers(b"", 1, LIMIT)
        pub.send_parts([b"other", b"unwanted"])
        pub.send_parts([b"forex.", b"eur", b" 1.1"])
        assert sub.recv() == b"forex.eur 1.1"


# -- the command line tools of both libraries ------------------------------------------------------

TOOLS = {
    "nngcat": {"push": "--push", "pull": "--pull", "pub": "--pub", "sub": "--sub", "req": "--req",
               "rep": "--rep", "pair": "--pair0", "pair1": "--pair1", "bus": "--bus",
               "surveyor": "--surveyor", "respondent": "--respondent"},
    "nanocat": {"push": "--push", "pull": "--pull", "pub": "--pub", "sub": "--sub", "req": "--req",
                "rep": "--rep", "pair": "--pair", "bus": "--bus", "surveyor": "--surveyor",
                "respondent": "--respondent"},
}
COUNTERPART = {"push": "pull", "pub": "sub", "req": "rep", "pair": "pair", "pair1": "pair1",
               "bus": "bus", "surveyor": "respondent"}
COUNTERPART.update({value: key for key, value in list(COUNTERPART.items())})
CASES = [(tool, mine) for tool, kinds in TOOLS.items() for mine in COUNTERPART
         if COUNTERPART[mine] in kinds]


@pytest.fixture
def tool():
    running = []

    def start(name, *args):
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        process = subprocess.Popen([path, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        running.append(process)
        return process
    yield start
    for process in running:
        print(*process.args, "| exit status before its end:", process.poll())
        process.kill()
        print(process.communicate()[1].decode())


@pytest.mark.parametrize("over", ["tcp", *SLOWLY])
@pytest.mark.parametrize("bind", [True, False], ids=["we_bind", "we_connect"])
@pytest.mark.parametrize("name,mine", CASES)
def test_command_line_tools(ctx, tool, name, mine, bind, over, tmp_path):
    """A tool sends, or answers, or prints what it got and ends."""
    kind = COUNTERPART[mine]
    url = f"ipc://{tmp_path}/s" if over == "ipc" else f"{over}://{free_address()}"
    args = [TOOLS[name][kind], "--bind" if not bind else "--connect", url]
    speaks = kind not in ("pull", "sub")
    if speaks:
        args += ["--data", "hello"]
    if kind in ("pull", "sub", "req", "surveyor", "bus", "pair", "pair1"):
        args += ["--raw"]
    if kind in ("pub", "push", "bus", "pair", "pair1", "surveyor"):
        args += ["--interval", "0.1" if name == "nanocat" else "1"]    # we may come late
    if name == "nngcat" and kind == "sub":
        args += ["--subscribe", ""]
    s = ctx.socket(mine, recv_timeout=LIMIT, send_timeout=LIMIT, wire="sp")
    if mine == "sub":
        s.subscribe(b"")
    if bind:
        s.bind(url)
    process = tool(name, *args)
    if not bind:
        s.connect(url, reconnect=0.02, reconnect_max=0.05)
    s.wait_peers(1, LIMIT)
    if mine == "req":
        assert s.request(b"ask") == b"hello"
    elif mine in ("rep", "respondent"):
        message = s.recv_msg()
        assert message.body == b"hello"
        message.reply(b"answer")
        assert process.stdout.read(6) == b"answer"
    elif mine == "surveyor":
        assert next(s.survey(b"ask", deadline=LIMIT)) == b"hello"
    elif speaks:
        assert s.recv() == b"hello"
    if mine in ("push", "pub", "bus", "pair", "pair1"):
        s.send(b"from us")
        assert process.stdout.read(7) == b"from us"
