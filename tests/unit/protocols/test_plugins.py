"""The patterns as a table: numbers, names, who talks to whom, option rows, unused operations."""

import pytest
from mqcore.testing.native.pattern_bench import Bench, Refused, Status, altered

from mqcore.spi import registry
from mqcore.spi.zmtp import TYPES

# name: ZMTP number, SP number, peers
TABLE = {
    "pair": (0, 0x10, {"pair"}),
    "pub": (1, 0x20, {"sub", "xsub"}),
    "sub": (2, 0x21, {"pub", "xpub"}),
    "req": (3, 0x30, {"rep", "router"}),
    "rep": (4, 0x31, {"req", "dealer"}),
    "dealer": (5, 0x30, {"rep", "dealer", "router"}),
    "router": (6, 0x31, {"req", "dealer", "router"}),
    "pull": (7, 0x51, {"push"}),
    "push": (8, 0x50, {"pull"}),
    "xpub": (9, 0x20, {"sub", "xsub"}),
    "xsub": (10, 0x21, {"pub", "xpub"}),
    "radio": (-1, -1, {"dish"}),
    "dish": (-1, -1, {"radio"}),
    "client": (-1, -1, {"server"}),
    "server": (-1, -1, {"client"}),
    "scatter": (-1, -1, {"gather"}),
    "gather": (-1, -1, {"scatter"}),
    "peer": (-1, -1, {"peer"}),
    "channel": (-1, -1, {"channel"}),
    "dgram": (-1, -1, set()),
    "pair1": (-1, 0x11, {"pair1"}),
    "bus": (-1, 0x70, {"bus"}),
    "surveyor": (-1, 0x62, {"respondent"}),
    "respondent": (-1, 0x63, {"surveyor"}),
    "stream": (-1, -1, {"stream"}),
}
NOT_ON_ZMTP = ("pair1", "bus", "surveyor", "respondent", "dgram", "stream")
SEND, RECV = 1, 2


def load(name):
    return registry.pattern(name)


every = pytest.mark.parametrize("name", TABLE)


@every
def test_facts(name):
    plugin = load(name)
    number, sp, peers = TABLE[name]
    zmtp = "" if name in NOT_ON_ZMTP else name.upper()
    assert (plugin.name, plugin.zmtp, plugin.number) == (name, zmtp, number)
    assert (plugin.sp, set(plugin.peers)) == (sp, peers)
    assert plugin.abi == 5 and plugin.doc


@every
def test_peers_agree(name):
    assert all(name in load(peer).peers for peer in load(name).peers)


@every
def test_option_rows_are_true(name):
    plugin = load(name)
    kinds = {"bool": bool, "int": int, "bytes": bytes, "seconds": float,
             "size": int}
    with Bench(plugin) as b:
        for option, kind, default, doc in plugin.options:
            assert default is None or type(default) is kinds[kind]
            assert doc
            assert b.set_option(option, default or kinds[kind]()) is Status.OK
        assert b.set_option("no_such_option", 1) is Status.UNSUPPORTED


@every
def test_flags_tell_what_is_supported(name):
    plugin = load(name)
    with Bench(plugin) as b:
        assert (b.send(b"x", b"y") is Status.UNSUPPORTED) == (not plugin.flags & SEND)
        assert (b.recv() is Status.UNSUPPORTED) == (not plugin.flags & RECV)
        assert b.query_raw(12345) == -1
        assert b.query("can_recv") == 0


@every
def test_peers_come_and_go_with_anything_in_their_pipes(name):
    with Bench(load(name)) as b:
        for i in range(12):
            try:
                far = b.attach(b"id%d" % (i % 3), hwm=2, unversioned=i % 2, prio=i % 4 + 1)
            except Refused:
                assert name in ("pair", "pair1", "channel", "dgram", "stream")
                continue
            for m in ([b""], [b"", b"x" * 99], [b"\1t"], [b"a", b"b", b"c" * 99], [b"\0t"]):
                far.put(*m)
            far.put_subscribe(b"s")
            far.put_cancel(b"other")
            b.send(b"id0", b"", b"x" * 99)
            b.send(b"solo")
            b.check()
            b.recv()
            if i % 3 == 0:
                far.hangup()
            if i % 4 == 0:
                far.detach()
            b.check()


@pytest.mark.parametrize("name", ["pair", "pair1", "bus", "pull", "dealer", "sub", "xsub", "xpub"])
@pytest.mark.parametrize("flag", [8, 16])
def test_flags_of_the_sender_do_not_reach_us(name, flag):
    """A message forwarded inside one process may still carry the forwarder's envelope flags."""
    with Bench(load(name)) as b:
        if name == "sub":
            b.subscribe(b"")
        b.attach().put(b"id", b"body", control=flag)
        assert b.recv_flags() == [(b"id", 1), (b"body", 0)]
        b.check()


# -- judging what comes through the door -------------------------------------------------------

OPERATIONS = ("init", "fini", "set_option", "attach", "detach", "hangup", "readable", "writable",
              "send", "recv", "query")


@every
def test_the_built_in_ones_have_no_faults(name):
    assert load(name).faults() == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_missing_operation_is_a_fault(operation):
    fault, = altered(load("push"), without=operation).faults()
    assert fault == f"lacks the operation {operation} (NULL)"


BAD = {
    "flags": ({"flags": SEND | 1 << 20}, "flags that this mqcore does not know"),
    "useless": ({"flags": 4}, "neither sends nor receives"),
    "size": ({"size": 8}, "must start with a Pattern"),
    "name": ({"name": "Push It"}, "has the name 'Push It'"),
    "none": ({"peers": None}, "None"),
    "type": ({"zmtp": "TWO WORDS", "number": -1, "peers": ()}, "no Socket-Type"),
    "long": ({"zmtp": "X" * 24, "number": -1, "peers": ()}, "up to 23"),
    "number": ({"number": 3}, "PUSH has number 3, which is 8"),
    "own-number": ({"zmtp": "LANES", "number": 8, "peers": ()}, "not in ZMTP 2.0"),
    "peer": ({"zmtp": "LANES", "number": -1, "peers": ("pull",)},
             "names the peer 'pull', which would refuse it: a PULL takes PUSH, this announces "
             "LANES"),
    "peers": ({"peers": (7,)}, "peers that are no names"),
}


@pytest.mark.parametrize("case", BAD)
def test_facts_that_contradict_each_other(case):
    change, text = BAD[case]
    fault, = altered(load("push"), **change).faults()
    assert text in fault


def test_own_types_need_no_number():
    fine = altered(load("push"), name="lanes", zmtp="LANES", number=-1, peers=("sticky",))
    assert fine.faults() == [] and fine.kind == "LANES"
    assert altered(load("push"), zmtp="", number=-1, peers=()).kind == "push"


def test_the_table_of_types_is_the_patterns_own():
    for name in set(TABLE) - set(NOT_ON_ZMTP):
        plugin = load(name)
        number, taken = TYPES[plugin.zmtp]
        assert number == plugin.number and set(taken) == {p.upper() for p in plugin.peers}
