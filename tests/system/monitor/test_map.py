"""`mq map`, and the graph behind it: connections of several processes, matched at both ends."""

import json
import shutil
import subprocess
import xml.etree.ElementTree as xml

import pytest
from monitored import child, end
from programs import mq as command
from programs import run

from mqcore import monitor
from mqcore.monitor import drawing
from mqcore.monitor.topology import topology
from mqcore.testing import until

ENDS = """
import sys, mqcore as mq
socks = [mq.socket(word.split("=", 1)[0], **{how: word.split("=", 1)[1]})
         for how, word in zip(sys.argv[1::2], sys.argv[2::2])]
for sock in socks:
    if sys.argv[1] == "connect":
        sock.wait_peers(1, timeout=30)
print("ready", flush=True)
sys.stdin.readline()
[sock.close(0) for sock in socks]
"""
URLS = ("ipc://{0}/a", "shm://{0}/b", "tcp://127.0.0.1:0", "inproc://q")


@pytest.fixture
def programs():
    running = []

    def start(*words, monitored=True):
        running.append(child(ENDS, *words, MQCORE_MONITOR="1" if monitored else "0"))
        return running[-1].pid

    yield start
    for process in running:
        end(process)


def bound(pid):
    """The URLs that a process listens at."""
    shot, = (shot for shot in monitor.look(timeout=60.0) if shot.process.pid == pid)
    return [facts.endpoints[0].url for facts in shot.sockets]


def graph(outside=False):
    """Once both ends of each connection know of it, or if it is with somebody `outside`, one."""
    def look():
        found = topology(monitor.look(timeout=60.0))
        strange = any(node.outside for node in found.nodes.values())
        return found if found.edges and strange == outside else None
    found = until(look, 60)
    return found, {key: node.group.split()[-1] for key, node in found.nodes.items()}


@pytest.mark.parametrize("url", URLS[:3], ids=["ipc", "shm", "tcp"])
def test_two_processes_are_joined(programs, folder, url):
    server = programs("bind", f"pull={url.format(folder.parent)}")
    address, = bound(server)
    client = programs("connect", f"push={address}", "connect", f"push={address}")
    found, process = graph()
    assert [(process[edge.first], process[edge.second], edge.connections, edge.one_way)
            for edge in found.edges] == [(str(client), str(server), 1, True)] * 2
    assert len({edge.first for edge in found.edges}) == 2


def test_requests_go_both_ways_and_inproc_stays_inside(programs):
    server = programs("bind", "rep=tcp://127.0.0.1:0", "bind", "pull=inproc://q",
                      "connect", "push=inproc://q")
    client = programs("connect", f"req={bound(server)[0]}")
    found, process = graph()
    assert sorted((process[edge.first], process[edge.second], edge.one_way, edge.transport)
                  for edge in found.edges) == sorted([
                      (str(client), str(server), False, "tcp"),
                      (str(server), str(server), True, "inproc")])


def test_a_peer_that_is_not_monitored_is_shown(programs, folder):
    server = programs("bind", f"pull=ipc://{folder.parent}/a")
    stranger = programs("connect", f"push=ipc://{folder.parent}/a", monitored=False)
    found, _ = graph(outside=True)
    edge, = found.edges
    assert found.nodes[edge.first].outside
    assert str(stranger) in found.nodes[edge.first].label
    text = drawing.as_text(found)
    assert str(server) in text
    assert f"<-- not monitored: ipc://{folder.parent}/a (process {stranger})" in text


def test_the_command_draws(programs, folder, tmp_path):
    server = programs("bind", f"pull=ipc://{folder.parent}/a")
    programs("connect", f"push=ipc://{folder.parent}/a")
    graph()
    status, out, err = run(*command("map", "--wait", 60))
    assert (status, err) == (0, "")
    assert f"--> pull 1 of -c {server}  (ipc, 0 messages)".encode() in out
    status, out, err = run(*command("map", "--wait", 60, "--format", "dot"))
    assert status == 0
    assert out.count(b"subgraph") == 2 and out.count(b" -> ") == 1
    path = tmp_path / "map.svg"
    status, _, err = run(*command("map", "--wait", 60, "--format", "svg", "-o", path))
    assert (status, err) == (0, "")
    picture = xml.parse(path).getroot()
    assert len(picture.findall(".//{*}rect[@class='socket']")) == 2
    assert len(picture.findall(".//{*}path[@class='edge']")) == 1


def test_nothing_to_draw():
    for shown in ("text", "dot", "svg"):
        status, out, err = run(*command("map", "--wait", 60, "--format", shown))
        assert status == 0
        assert "MQCORE_MONITOR=1" in err
    assert xml.fromstring(out).tag.endswith("svg")


def hostile():
    """A snapshot whose texts are chosen by an adversary."""
    nasty = '"]; </text><script>alert(1)</script>\x1b[2J\\\n\u202e'
    peer = monitor.PeerFacts(id=1, address=nasty, pattern=nasty, endpoint=nasty, since=1.0)
    facts = monitor.SocketFacts(number=1, pattern="pull", connected=1, peers=[peer], endpoints=[
        monitor.EndpointFacts(url=nasty, given=nasty, kind="bind", state="listening")])
    return monitor.Snapshot(
        v=1, at=0.0, clock=0.0, events="", sockets=[facts], left_out=3,
        process=monitor.Process(pid=1, host="h", program=nasty, uid=0, started=0.0, python="",
                                mqcore=""),
        context=monitor.ContextFacts(id="c", name=nasty))


def test_texts_of_an_adversary_stay_texts():
    found = topology([hostile()])
    for draw in (drawing.as_text, drawing.as_dot, drawing.as_svg):
        text = draw(found)
        assert "\x1b" not in text and "\u202e" not in text
        assert "3 peers are not listed" in text
    picture = xml.fromstring(drawing.as_svg(found))
    assert not picture.findall(".//{*}script")
    dot = drawing.as_dot(found)
    for line in dot.splitlines():
        assert line.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0


def test_graphviz_reads_it():
    if shutil.which("dot") is None:
        pytest.skip("Graphviz's dot is not installed")
    text = drawing.as_dot(topology([hostile()]))
    done = subprocess.run(["dot", "-Tjson"], input=text.encode(), capture_output=True, check=True)
    assert json.loads(done.stdout)["name"] == "mqcore"
