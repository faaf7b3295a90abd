"""Sides over other systems' clients, without a broker: missing packages, addresses, what cannot be
carried, and lost connections to a fake. tests/brokers has the real ones."""

import asyncio
import socket
import sys
import time

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from fake_brokers import FakeMqtt, FakeNats, FakeStomp

import mqcore as mq
from mqcore import bridge
from mqcore.bridge import plugins
from mqcore.bridge.address import Address
from mqcore.bridge.runner import Runner

CLIENTS = {"redis": ("redis", "redis.asyncio", "redis://h?stream=s"),
           "nats": ("nats", "nats", "nats://h?subject=s"),
           "amqp": ("amqp", "pika", "amqp://h?queue=q"),
           "mqtt": ("mqtt", "paho.mqtt.client", "mqtt://h?topic=t&client=c"),
           "kafka": ("kafka", "confluent_kafka", "kafka://h?topic=t&group=g"),
           "stomp": ("stomp", "stomp", "stomp://h?destination=/queue/q"),
           "http": ("webhook", "aiohttp", "http://h/p")}
UNCOMPILED = {"amqp10": ("amqp10", "proton", "amqp10://h?address=a")}      # not in the group `test`


@pytest.mark.parametrize("name", [*CLIENTS, *UNCOMPILED])
def test_a_missing_package_names_its_extra(name, monkeypatch):
    extra, module, address = {**CLIENTS, **UNCOMPILED}[name]
    monkeypatch.setitem(sys.modules, module, None)
    for make in (plugins.source, plugins.target):
        with pytest.raises(mq.NotSupported, match="needs the package") as caught:
            make(address)
        assert f'mqcore[{extra}]"' in str(caught.value.hint)


@pytest.mark.parametrize("name", CLIENTS)
def test_no_password_is_shown(name):
    address = CLIENTS[name][2].replace("//", "//me:secret@")
    side = plugins.source(address)
    assert "secret" not in side.explain() and "me:***@h" in side.explain()


@pytest.mark.parametrize(("url", "shown"), [
    ("redis://u:se/cret@h:1/0", "redis://***@h:1/0"), ("redis://u:se#cret@h", "redis://***@h"),
    ("redis://:se/cret@h", "redis://***@h"), ("redis://u:pw@h:1/a@b", "redis://u:***@h:1/a@b"),
    ("amqp://[::1]:5672/a@b", "amqp://[::1]:5672/a@b"), ("http://h:1/@news", "http://h:1/@news")])
def test_a_password_that_is_not_quoted_is_not_shown(url, shown):
    """It cuts the host off. An @ elsewhere is no matter of passwords."""
    address = Address(url.partition(":")[0], "", url)
    assert address.shown == shown
    if "se" in url:
        with pytest.raises(mq.AddressError, match="port") as caught:
            address.port(6379)
        assert "cret" not in str(caught.value) and "%2F" in caught.value.hint


@pytest.mark.parametrize("name", ["nats", "natss"])
def test_no_token_is_shown(name):
    side = plugins.source(f"{name}://secret@h?subject=a")
    assert "secret" not in side.explain() and f"{name}://***@h" in side.explain()


@pytest.mark.parametrize(("address", "word"), [
    ("nats://h?stream=s&create=true", "subject="), ("nats://h?subject=s&ack_wait=0", "ack_wait"),
    ("amqp://h?queue=q&prefetch=0", "prefetch"),
    ("mqtt://h?topic=t&client=c&inflight=0", "inflight"),
    ("mqtt://h?topic=t&client=c&version=3", "version"), ("nats://h", "subject"),
    ("mqtt://h?topic=t", "client"), ("amqp://h", "queue"), ("stomp://h", "destination"),
    ("stomp://h?destination=d&prefetch=0", "prefetch"), ("nats://h?subjct=s", "subject"),
], ids=str)
def test_addresses_with_mistakes(address, word):
    with pytest.raises(mq.Error, match=word):
        plugins.source(address)


def test_targets_with_mistakes():
    with pytest.raises(mq.UsageError, match="both a queue and an exchange"):
        plugins.target("amqp://h?queue=q&exchange=e")
    with pytest.raises(mq.UsageError, match="2 topics"):
        plugins.target("mqtt://h?topic=t&topic=u")


def refusal(target, message):
    with pytest.raises(ValueError) as caught:
        target.prepared(message)
    return str(caught.value)


@pytest.mark.parametrize("name", ["Nats-Rollup", "nats-msg-id", "a b", "a:b", "é", "a\r\nb", ""])
def test_headers_that_nats_cannot_carry(name):
    target = plugins.target("nats://h?subject=s")
    assert "rename or remove it" in refusal(target, bridge.Message(b"", headers=[(name, b"x")]))


@pytest.mark.parametrize("subject", ["", "a b", "a.*", "a.>", ".a", "a..b", "a.", "a\r\nPUB b 0"])
def test_subjects_that_nats_cannot_carry(subject):
    target = plugins.target("nats://h")
    assert "no subject" in refusal(target, bridge.Message(b"", address=subject))


def test_what_amqp_cannot_carry():
    target = plugins.target("amqp://h?exchange=e&max_bytes=10")
    assert "routing key" in refusal(target, bridge.Message(b"", address="k" * 256))
    assert "max_bytes" in refusal(target, bridge.Message(b"x" * 11))
    for name, value in (("h" * 256, b""), ("amqp-type", b"x" * 256)):
        assert "too long" in refusal(target, bridge.Message(b"", headers=[(name, value)]))
    _, found = target.prepared(bridge.Message(
        b"", headers=[("amqp-type", b"t"), ("other", b"\xff\n")], time=5.5))
    assert (found.type, found.headers, found.timestamp, found.delivery_mode) == \
        ("t", {"other": "\\xff\\n"}, 5, 2)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0", "t" * 65536])
def test_topics_that_mqtt_cannot_carry(topic):
    target = plugins.target("mqtt://h")
    assert "no topic" in refusal(target, bridge.Message(b"", address=topic))


def unique(bodies):
    return [int(body) for body in dict.fromkeys(bodies)]


def test_a_stream_that_is_full_and_lost_gets_all():
    async def main():
        async with FakeNats(lose=[5, 30], full=3) as fake:
            source = Numbers(100)
            runner = Runner(source, f"nats://127.0.0.1:{fake.port}?stream=S&subject=s",
                            dead="discard", batch=10, window=40, pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 100)
            laws(runner.stats())
            assert runner.stats().discarded == 0 and runner.stats().target_reconnects >= 2
            assert set(unique(fake.stored)) == set(range(100))
            # what came twice has the id that it had before
            assert {name.decode(): int(body) for name, body in fake.ids.items()} == \
                {str(n): n for n in range(100)}
            assert all(b"Nats-Expected-Stream: S" in head for head in fake.headers)
    asyncio.run(main())


def test_core_nats_refuses_what_the_server_does_not_take():
    class Large(Numbers):
        async def receive(self, most):
            found = await super().receive(most)
            for message in found:
                message.body = b"x" * 1001 if message.token == 3 else message.body
            return found

    async def main():
        async with FakeNats() as fake:
            source, letters = Large(10), Sink()
            runner = Runner(source, f"nats://127.0.0.1:{fake.port}?subject=s", dead=letters)
            await moved(runner, lambda: len(source.done) == 10)
            assert [message.id for message in letters.taken] == ["3"]
            assert unique(fake.stored) == [n for n in range(10) if n != 3]
    asyncio.run(main())


def test_an_mqtt_broker_that_is_lost_gets_all_in_order():
    async def main():
        async with FakeMqtt(lose=[7, 50, 51]) as fake:
            source = Numbers(120)
            runner = Runner(source, f"mqtt://127.0.0.1:{fake.port}?topic=t&version=4", batch=10,
                            window=40, pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 120)
            laws(runner.stats())
            assert unique(fake.stored) == list(range(120))
            assert fake.connections == 4
    asyncio.run(main())


def test_an_mqtt_source_acknowledges_in_order_what_the_target_has():
    async def main():
        bodies = [b"%d" % n for n in range(100)]
        async with FakeMqtt(feed=bodies, lose_acks=[10, 40]) as fake:
            sink = Sink()
            runner = Runner(f"mqtt://127.0.0.1:{fake.port}?topic=t&client=c&version=4", sink,
                            batch=10, pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(fake.acknowledged) == 100)
            laws(runner.stats())
            assert fake.acknowledged == bodies and fake.connections == 3
            assert unique(message.body for message in sink.taken) == list(range(100))
            again = [message for message in sink.taken if message.redelivered]
            assert again and all("mq-redelivered" in dict(message.headers) for message in again)
    asyncio.run(main())


@pytest.mark.parametrize("name", CLIENTS)
def test_a_system_that_is_away_is_waited_for(name):
    """Nothing listens; the bridge says so, and can be stopped."""
    async def main():
        source = Numbers(3)
        with_port = CLIENTS[name][2].replace("//h", "//127.0.0.1:1").replace("&client=c", "") \
            .replace("&group=g", "")
        runner = Runner(source, with_port, dead="discard", pause=0.001, longest_pause=0.01)
        task = asyncio.ensure_future(runner.run(linger=0))
        async with asyncio.timeout(LIMIT):
            while runner.stats().target_reconnects < 3:
                await asyncio.sleep(0.005)
        assert "lost or failed" in runner.explain() and runner.stats().discarded == 0
        runner.stop()
        await task
        assert not source.done
        laws(runner.stats())
    asyncio.run(main())


@pytest.mark.parametrize("name", ["a:b", "a\nb", "", "receipt", "destination", "content-length",
                                  "back\\slash"])
def test_headers_that_stomp_cannot_carry(name):
    target = plugins.target("stomp://h?destination=/queue/q")
    assert "rename or remove it" in refusal(target, bridge.Message(b"", headers=[(name, b"x")]))


def test_what_stomp_cannot_carry():
    target = plugins.target("stomp://h?destination=/queue/q&max_bytes=10")
    assert "max_bytes" in refusal(target, bridge.Message(b"x" * 11))
    message = bridge.Message(b"x", headers=[("stomp-type", b"t"), ("a", b"\0\r")])
    assert target.prepared(message) == \
        {"type": "t", "a": "\\x00\\r", "destination": "/queue/q", "persistent": "true",
         "content-length": "1"}


def test_a_stomp_broker_that_is_lost_gets_all():
    async def main():
        async with FakeStomp(lose=[7, 50, 51]) as fake:
            source = Numbers(120)
            runner = Runner(source, f"stomp://127.0.0.1:{fake.port}?destination=/queue/q", batch=10,
                            window=40, pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 120)
            laws(runner.stats())
            assert unique(fake.stored) == list(range(120)) and fake.connections == 4
    asyncio.run(main())


def test_a_message_that_a_stomp_broker_always_refuses_is_a_dead_letter():
    """It answers with ERROR and ends the connection, each time."""
    async def main():
        async with FakeStomp(bad=[b"13"]) as fake:
            source, letters = Numbers(30), Sink()
            runner = Runner(source, f"stomp://127.0.0.1:{fake.port}?destination=/queue/q", batch=10,
                            dead=letters, pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 30)
            laws(runner.stats())
            assert [message.body for message in letters.taken] == [b"13"]
            assert unique(fake.stored) == [n for n in range(30) if n != 13]
    asyncio.run(main())


def test_a_stomp_source_acknowledges_what_the_target_has():
    async def main():
        bodies = [b"%d" % n for n in range(100)]
        async with FakeStomp(feed=bodies, lose_acks=[1, 2]) as fake:
            sink = Sink()
            runner = Runner(f"stomp://127.0.0.1:{fake.port}?destination=/queue/q", sink, batch=10,
                            pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: not fake.left)
            laws(runner.stats())
            assert fake.connections == 3
            assert unique(message.body for message in sink.taken) == list(range(100))
    asyncio.run(main())


@pytest.mark.parametrize("late", [0, 0.2])
def test_a_stomp_broker_that_says_nothing_is_given_up(late, monkeypatch):
    """It accepts the connection, and does not answer CONNECT; the bridge can be stopped, also
    before the client knows of its connection."""
    connect = socket.create_connection

    def connect_late(*where, **options):
        made = connect(*where, **options)
        time.sleep(late)
        return made

    monkeypatch.setattr(socket, "create_connection", connect_late)

    async def main():
        async with FakeStomp(silent=True) as fake:
            runner = Runner(Numbers(1), f"stomp://127.0.0.1:{fake.port}?destination=/queue/q")
            task = asyncio.ensure_future(runner.run(linger=0))
            async with asyncio.timeout(LIMIT):
                while not fake.connections:
                    await asyncio.sleep(0.005)
                runner.stop()
                await task
    asyncio.run(main())
