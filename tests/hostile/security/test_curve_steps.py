"""CURVE's commands one by one, without I/O: right ones at any cut, and every way to be wrong.

The other side is made by hand over libsodium (tests/support/rawcurve.py)."""

import pytest
from mqcore.testing.native.probe import CANCEL, SUBSCRIBE, Probe
from probing import flipped, say
from rawcurve import Client, Server, greeting, number
from rawzmtp import COMMAND, MORE, SIGNATURE, command, frame, prop

import mqcore as mq

PROPERTIES = prop(b"Socket-Type", b"PULL")


def greeted(server_keys, allow=mq.security.ANY, **options):
    """Our server, a PULL: it waits for HELLO."""
    probe = Probe("PULL", ("PUSH",), codec="zmtp-curve", security=mq.security.Curve(
        secret_key=server_keys.secret, allow=allow), **options)
    probe.start(listening=True)
    assert probe.feed(greeting(b"CURVE"))[0] == "need_data"
    return probe


@pytest.fixture
def server(server_keys, client_keys):
    return greeted(server_keys, {client_keys.public})


@pytest.fixture
def client(server_keys, client_keys):
    """Ours, a PUSH, greeted; its HELLO is in `client.hello`."""
    probe = Probe("PUSH", ("PULL",), codec="zmtp-curve", security=mq.security.Curve(
        server_keys.public, secret_key=client_keys.secret))
    said = probe.start() + probe.feed(greeting(b"CURVE", server=True))[2]
    assert said[:64] == greeting(b"CURVE")
    return probe, said[64 + 2:]


@pytest.fixture
def raw(server_keys, client_keys):
    return Client(client_keys.raw, server_keys.raw[0])


def welcomed(probe, raw):
    status, (welcome,) = say(probe, raw.hello())
    assert status == "need_data"
    raw.welcome(welcome)


def shaken(probe, raw):
    welcomed(probe, raw)
    status, (ready,) = say(probe, raw.initiate())
    assert status == "done"
    return raw.ready(ready)


def greeted_by(client, server_keys):
    """Our client before a server by hand, which has opened its HELLO."""
    probe, hello = client
    raw = Server(server_keys.raw)
    raw.hello(hello)
    return probe, raw


def test_our_server(server, raw, client_keys):
    assert shaken(server, raw) == PROPERTIES
    assert server.proof == client_keys.raw[0] and server.peer["mechanism"] == "CURVE"
    status, parts = server.decode(frame(raw.message(b"one", 1)) + frame(raw.message(b"two")))
    assert (status, parts) == ("need_data", [(1, b"one"), (0, b"two")])


def test_our_client(client, server_keys, client_keys):
    probe, raw = greeted_by(client, server_keys)
    status, (initiate,) = say(probe, raw.welcome())
    assert raw.initiate(initiate) == prop(b"Socket-Type", b"PUSH")
    assert raw.client == client_keys.raw[0]
    assert say(probe, raw.ready()) == ("done", [])
    probe.put(b"a" * 10, b"b" * 70_000)
    said = probe.wire()
    assert raw.read(said[2:2 + 43]) == (1, b"a" * 10)
    assert raw.read(said[2 + 43 + 9:]) == (0, b"b" * 70_000)


@pytest.mark.parametrize("cut", [1, 2, 7, 63, 199])
def test_any_cut_gives_the_same(server, raw, cut):
    def feed(data):
        said = b""
        for at in range(0, len(data), cut):
            status, used, answer = server.feed(data[at:at + cut])
            assert used == len(data[at:at + cut])
            said += answer
        return status, said
    status, said = feed(command(b"HELLO", raw.hello()[6:]))
    raw.welcome(said[2:])
    status, said = feed(frame(raw.initiate(), COMMAND))
    assert status == "done" and raw.ready(said[2:]) == PROPERTIES
    wire = b"".join(frame(raw.message(b"%d" % n * n, n & 1)) for n in range(0, 300, 7))
    wire += frame(raw.message(b"\4PING\0\0abc", 2)) + frame(raw.message(b"x" * 100_000))
    parts = []
    for at in range(0, len(wire), cut * 17):
        status, found = server.decode(wire[at:at + cut * 17])
        assert status == "need_data"
        parts += found
    assert parts == [(n & 1, b"%d" % n * n) for n in range(0, 300, 7)] + [(0, b"x" * 100_000)]
    assert raw.read(server.wire()[2:]) == (2, b"\4PONGabc")


# -- everything that can be wrong -----------------------------------------------------------------

@pytest.mark.parametrize("change, why", [
    (lambda b: b[:-1], "length"), (lambda b: b + b"\0", "longer"), (lambda b: b[:6], "length"),
    (lambda b: flipped(b, 6), "version"), (lambda b: flipped(b, 7), "version"),
    (lambda b: flipped(b, 80), "does not open"), (lambda b: flipped(b, 119), "does not open"),
    (lambda b: flipped(b, 120), "does not open"), (lambda b: flipped(b, 199), "does not open"),
    (lambda b: b[:80] + bytes(32) + b[112:], "public key"),
    (lambda b: b"\5READY" + b[6:], "READY instead of HELLO"), (lambda b: b"", "else than HELLO"),
    (lambda b: b"\xff" * 200, "else than HELLO"), (lambda b: flipped(b, 5), "instead of HELLO"),
])
def test_a_wrong_hello(server, raw, change, why):
    assert say(server, change(raw.hello())) == ("protocol", [])
    assert why in server.reason


@pytest.mark.parametrize("change, why", [
    (lambda b: b[:256], "too short"), (lambda b: b[:9], "too short"),
    (lambda b: flipped(b, 9), "cookie"), (lambda b: flipped(b, 104), "cookie"),
    (lambda b: flipped(b, 112), "does not open"), (lambda b: flipped(b, 113), "does not open"),
    (lambda b: flipped(b, len(b) - 1), "does not open"), (lambda b: b[:-1], "does not open"),
    (lambda b: b + b"\0", "does not open"), (lambda b: flipped(b, 3), "instead of INITIATE"),
    (lambda b: b"\5HELLO" + bytes(194), "HELLO instead of INITIATE"),
])
def test_a_wrong_initiate(server, raw, change, why):
    welcomed(server, raw)
    assert say(server, change(raw.initiate())) == ("protocol", [])
    assert why in server.reason


@pytest.mark.parametrize("forged", ["vouched", "named", "signed"])
def test_a_vouch_for_something_else(server, raw, other_keys, client_keys, forged):
    """Well sealed, and still not true."""
    welcomed(server, raw)
    other, theirs = other_keys.raw
    lie = {"vouched": {"vouched": other}, "named": {"named": other},
           "signed": {"own": (client_keys.raw[0], theirs)}}[forged]
    assert say(server, raw.initiate(**lie)) == ("protocol", [])
    assert "vouch" in server.reason


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_keys_that_are_none(server, client, raw, server_keys, point):
    """Points of low order: what is shared with them is known to all."""
    welcomed(server, raw)
    assert say(server, raw.initiate(own=(point, raw.own[1]))) == ("protocol", [])
    assert "vouch" in server.reason
    probe, theirs = greeted_by(client, server_keys)
    theirs.public = point
    assert say(probe, theirs.welcome()) == ("protocol", [])
    assert "no public key" in probe.reason


def test_a_cookie_of_another_connection(server, raw, server_keys, client_keys):
    other = Probe("PULL", ("PUSH",), codec="zmtp-curve",
                  security=mq.security.Curve(secret_key=server_keys.secret, allow=mq.security.ANY))
    other.start(listening=True)
    other.feed(greeting(b"CURVE"))
    before = Client(client_keys.raw, server_keys.raw[0])
    welcomed(other, before)
    welcomed(server, raw)
    assert say(server, raw.initiate(cookie=before.cookie)) == ("protocol", [])
    assert "not this connection's" in server.reason
    assert say(other, before.initiate())[0] == "done"


def test_an_initiate_that_was_heard_elsewhere(server, raw, server_keys):
    """Repeated to a new connection with the same HELLO: the keys behind it are new ones."""
    hello = raw.hello()
    _, (welcome,) = say(server, hello)
    raw.welcome(welcome)
    initiate = raw.initiate()
    assert say(server, initiate)[0] == "done"
    again = Probe("PULL", ("PUSH",), codec="zmtp-curve",
                  security=mq.security.Curve(secret_key=server_keys.secret, allow=mq.security.ANY))
    again.start(listening=True)
    again.feed(greeting(b"CURVE"))
    assert say(again, hello)[0] == "need_data"
    assert say(again, initiate) == ("protocol", [])
    assert "replayed or forged" in again.reason


def test_a_count_that_does_not_grow(server, raw):
    welcomed(server, raw)
    assert say(server, raw.initiate(nonce=number(1))) == ("protocol", [])
    assert "does not grow" in server.reason


def test_a_key_that_is_not_allowed(server, raw, other_keys):
    raw.own = other_keys.raw
    welcomed(server, raw)
    assert say(server, raw.initiate()) == ("protocol", [b"\5ERROR\x03400"])
    assert "not among those allowed" in server.reason


@pytest.mark.parametrize("properties, why", [
    (b"\xff", "INITIATE is malformed"), (prop(b"Socket-Type", b"PUB"), "does not fit"),
    (prop(b"Socket-Type", b"PUSH") + b"\1", "INITIATE is malformed"),
])
def test_wrong_properties(server, raw, properties, why):
    welcomed(server, raw)
    assert say(server, raw.initiate(properties=properties)) == ("protocol", [])
    assert why in server.reason


@pytest.mark.parametrize("flags", [0, MORE, MORE | COMMAND])
def test_what_is_no_command(server, raw, flags):
    assert say(server, raw.hello(), flags) == ("protocol", [])
    assert "before the handshake was complete" in server.reason


@pytest.mark.parametrize("change, why", [
    (lambda b: b[:-1], "length"), (lambda b: b + b"\0", "length"), (lambda b: b[:8], "length"),
    (lambda b: flipped(b, 8), "does not open"), (lambda b: flipped(b, 24), "does not open"),
    (lambda b: flipped(b, 167), "does not open"), (lambda b: b"\5ERROR\x03400", "refused: 400"),
    (lambda b: b"\5HELLO" + bytes(194), "a client too"),
    (lambda b: b"\5READY", "READY instead of WELCOME"), (lambda b: b"", "else than WELCOME"),
])
def test_a_wrong_welcome(client, server_keys, change, why):
    probe, raw = greeted_by(client, server_keys)
    assert say(probe, change(raw.welcome())) == ("protocol", [])
    assert why in probe.reason


def test_a_server_without_the_key(client, server_keys, other_keys):
    probe, raw = greeted_by(client, server_keys)
    raw.own = other_keys.raw
    assert say(probe, raw.welcome()) == ("protocol", [])
    assert "has not the secret key that belongs to server_key" in probe.reason


@pytest.mark.parametrize("change, why", [
    (lambda b: b[:29], "too short"), (lambda b: b[:-1], "does not open"),
    (lambda b: b + b"\0", "does not open"), (lambda b: flipped(b, 13), "does not open"),
    (lambda b: flipped(b, 14), "does not open"), (lambda b: flipped(b, len(b) - 1), "not open"),
    (lambda b: b[:6] + bytes(8) + b[14:], "does not open"),
    (lambda b: b"\5ERROR\x03400", "refused: 400 (it does not accept our key)"),
    (lambda b: b"\5ERROR\x03500", "refused: 500 (its authenticator failed)"),
    (lambda b: b"\5ERROR\x99", "ERROR instead of READY"),
    (lambda b: b"\7WELCOME" + bytes(160), "WELCOME instead of READY"),
])
def test_a_wrong_ready(client, server_keys, change, why):
    probe, raw = greeted_by(client, server_keys)
    _, (initiate,) = say(probe, raw.welcome())
    raw.initiate(initiate)
    assert say(probe, change(raw.ready())) == ("protocol", [])
    assert why in probe.reason


# -- traffic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("forge, why", [
    (lambda raw: frame(b"in the clear"), "in the clear"),
    (lambda raw: frame(raw.message(b"x"), MORE), "in the clear"),
    (lambda raw: frame(b"\4PING\0\0", COMMAND), "in the clear"),
    (lambda raw: frame(b"\7MESSAGE" + bytes(24)), "in the clear"),
    (lambda raw: frame(b"\7MESSAGE" + bytes(25)), "does not grow"),
    (lambda raw: frame(flipped(raw.message(b"x" * 300), 40)), "does not open"),
    (lambda raw: frame(flipped(raw.message(b"x"), 15)), "does not open"),
    (lambda raw: frame(raw.message(b"x", nonce=number(2))), "does not grow"),
    (lambda raw: frame(raw.message(b"\4PING", 2)), "PING without its time to live"),
])
@pytest.mark.parametrize("copy", [False, True])
def test_forged_traffic(server, raw, forge, why, copy):
    shaken(server, raw)
    good = frame(raw.message(b"good"))
    status, parts = server.decode(good + forge(raw), copy=copy)
    assert (status, parts) == ("protocol", [(0, b"good")])
    assert why in server.reason


def test_replayed_and_swapped_messages(server, raw):
    shaken(server, raw)
    one, two = frame(raw.message(b"one")), frame(raw.message(b"two"))
    status, parts = server.decode(two + one)
    assert (status, parts) == ("protocol", [(0, b"two")]) and "replayed" in server.reason


def test_what_a_server_says_counts_on_from_its_ready(client, server_keys):
    probe, raw = greeted_by(client, server_keys)
    _, (initiate,) = say(probe, raw.welcome())
    raw.initiate(initiate)
    assert say(probe, raw.ready())[0] == "done"
    assert probe.decode(frame(raw.message(b"x", nonce=number(raw.count)))) == ("protocol", [])
    assert "does not grow" in probe.reason


def test_a_message_of_the_other_direction(server, raw):
    """What we said ourselves is no message of the peer's."""
    shaken(server, raw)
    raw.count = 100
    raw.mine = b"S"
    assert server.decode(frame(raw.message(b"x")))[0] == "protocol"
    assert "does not open" in server.reason


def test_gaps_and_commands_are_fine(server, raw):
    """Others are passed over; the specification's form, with the frame a command, is known too."""
    shaken(server, raw)
    raw.count = 1 << 40
    status, parts = server.decode(frame(raw.message(b"x"), COMMAND)
                                  + frame(raw.message(b"\3FOO", 2)) + frame(raw.message(b"y")))
    assert (status, parts) == ("need_data", [(0, b"x"), (0, b"y")])


def test_max_message_size_is_the_bodys(server_keys, raw):
    probe = greeted(server_keys, max_message_size=100)
    shaken(probe, raw)
    assert probe.decode(frame(raw.message(b"x" * 100))) == ("need_data", [(0, b"x" * 100)])
    assert probe.decode(frame(raw.message(b"x" * 101)))[0] == "protocol"
    assert "the limit is 100" in probe.reason


def test_what_was_not_sent_comes_back(client, server_keys):
    """A link dies with a batch half written: the messages not begun go back as they were."""
    probe, raw = greeted_by(client, server_keys)
    _, (initiate,) = say(probe, raw.welcome())
    raw.initiate(initiate)
    say(probe, raw.ready())
    large = b"L" * 200_000
    for message in ([b"first"], [b"two", b"parts" * 20], [large, b"tail"], [b"last"]):
        probe.put(*message)
    probe.ping(1000)
    probe.encode()
    assert probe.account["messages"] == 4
    pieces = b"".join(probe.gather())
    assert raw.read(pieces[2:2 + pieces[1]]) == (2, b"\4PING\0\x0a")   # it kept its place
    at = 2 + pieces[1]
    probe.advance(at + 3)                     # into the first message
    assert probe.account["half"]
    assert probe.unsent() == [(1, b"two"), (0, b"parts" * 20), (1, large), (0, b"tail"),
                              (0, b"last")]


@pytest.mark.parametrize("minor, said", [
    (1, [(2, b"\x09SUBSCRIBEtopic"), (2, b"\6CANCELtopic")]),
    (0, [(0, b"\1topic"), (0, b"\0topic")]),
])
def test_subscriptions_as_the_peers_version_has_them(server_keys, minor, said):
    probe = Probe("SUB", ("PUB",), codec="zmtp-curve",
                  security=mq.security.Curve(server_keys.public))
    theirs = greeting(b"CURVE")
    probe.start()
    raw = Server(server_keys.raw)
    raw.hello(probe.feed(theirs[:11] + bytes([minor]) + theirs[12:])[2][-200:])
    _, (initiate,) = say(probe, raw.welcome())
    raw.initiate(initiate)
    assert say(probe, raw.ready("PUB"))[0] == "done"
    probe.put(b"topic", flags=SUBSCRIBE)
    probe.put(b"topic", flags=CANCEL)
    wire = probe.wire()
    size = 2 + wire[1]
    assert [raw.read(wire[2:size]), raw.read(wire[size + 2:])] == said


def test_a_peer_before_3_0_is_refused(server_keys):
    for hello, version in ((SIGNATURE + b"\1\x08", "2.0"), (b"\1\0", "1.0")):
        probe = Probe("PULL", ("PUSH",), number=7, codec="zmtp-curve",
                      security=mq.security.Curve(secret_key=server_keys.secret,
                                                 allow=mq.security.ANY))
        probe.start(listening=True)
        assert probe.feed(hello)[0] == "protocol"
        assert probe.reason == (f"the peer speaks ZMTP {version}, which has no security; "
                                "this socket demands CURVE")
