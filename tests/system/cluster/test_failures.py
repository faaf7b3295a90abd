"""Members that are killed, stopped, drained: what requests see of it."""

import gc
import signal
import time

import pytest
from waiting import until

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster.requests import Call

LIMIT = 60.0


def closed(accounts):
    return accounts["asked"] == accounts["pending"] + sum(accounts[name] for name in (
        "answered", "faults", "timeouts", "overloaded", "lost", "unserved", "cancelled"))


def test_kills_cost_no_idempotent_request(once, key, nodes):
    programs = [nodes() for _ in range(3)]

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 3, timeout=20)
            errors, answered, stop = [], [], []

            async def ask(number):
                while not stop:
                    body = b"echo %d" % number
                    try:
                        assert await net.arequest("work", body, timeout=30,
                                                  idempotent=True) == body[5:]
                        answered.append(number)
                    except Exception as error:
                        errors.append(error)
                    await sleep(0.002)

            for number in range(8):
                net.loop.spawn(ask, number)
            for program in programs[1:]:
                count = len(answered)
                assert await net.until(lambda count=count: len(answered) > count + 100, 30)
                program.process.send_signal(signal.SIGKILL)
            count = len(answered)
            assert await net.until(lambda: len(answered) > count + 100, 30)
            stop.append(True)
            assert await net.until(lambda: not net.requests.pending, 30)
            assert not errors and len(net.members("work")) == 1
            accounts = net.stats()["requests"]
            assert closed(accounts) and accounts["answered"] == len(answered)

    once(main)


def test_another_request_is_lost_once_and_counted(once, key, nodes):
    program = nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            net.loop.later(0.2, program.process.kill)
            with pytest.raises(cluster.MemberLost, match="broke before its answer"):
                await net.arequest("work", b"sleep 30", timeout=30)
            assert net.stats()["requests"]["lost"] == 1 and closed(net.stats()["requests"])
            with pytest.raises(cluster.NoSuchService):
                await net.arequest("work", b"pid")

    once(main)


def test_a_hedge_passes_a_stopped_member_by(once, key, nodes):
    programs = [nodes(), nodes()]

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 2, timeout=20)
            programs[1].process.send_signal(signal.SIGSTOP)
            try:
                for _ in range(4):
                    assert await net.arequest("work", b"pid", timeout=20, hedge=0.05) == \
                        b"%d" % programs[0].process.pid
            finally:
                programs[1].process.send_signal(signal.SIGCONT)
            assert closed(net.stats()["requests"])

    once(main)


def test_a_drained_member_finishes_its_work(once, key, nodes):
    first, second = nodes(), nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 2, timeout=20)
            answers = []

            async def ask():
                answers.append(await net.arequest("work", b"sleep 0.4", timeout=30))

            for _ in range(6):
                net.loop.spawn(ask)
            await sleep(0.1)
            second.process.stdin.close()        # it drains
            second.process.stdin = None
            assert await net.until(lambda: len(answers) == 6, 30)
            assert await net.until(lambda: len(net.members()) == 2, 30)
            assert await net.arequest("work", b"pid", timeout=20) == b"%d" % first.process.pid
            accounts = net.stats()["requests"]
            assert accounts["lost"] == 0 and closed(accounts)

    once(main)
    assert second.result()[0] == 0


def test_events_tell_of_comings_and_goings(run, key, nodes):
    nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            events = net.events()
            async with cluster.ajoin(key, seeds=[nodes.seed]) as other:
                async with other.aserve("extra", Nothing()):
                    await net.await_members("extra", timeout=20)
            seen = []
            while "left" not in seen:
                seen.append((await events.anext(20)).kind)
            assert seen.index("joined") < seen.index("offers") < seen.index("left")

    run(main)


def test_a_killed_member_is_found_dead(once, key, nodes):
    nodes()
    program = nodes()

    async def main():
        async with cluster.ajoin(key, seeds=[nodes.seed]) as net:
            await net.await_members("work", 2, timeout=20)
            program.process.kill()
            killed = time.monotonic()
            assert await net.until(lambda: len(net.members("work")) == 1, 30)
            assert await net.until(lambda: len(net.members()) == 2, 50)
            assert time.monotonic() - killed < 50

    once(main)


class Nothing:
    async def request(self, req):
        return b""


class Fails:
    def request(self, req):
        raise OSError


def test_failed_requests_leave_nothing_for_the_garbage_collector(key):
    def left():
        return [one for one in gc.get_objects() if isinstance(one, (Call, cluster.ClusterError))]

    with cluster.join(key, udp=False) as net, net.serve("fails", Fails()):
        gc.collect()
        gc.disable()
        try:
            for _ in range(250):
                with pytest.raises(cluster.NoSuchService):
                    net.request("none", b"", timeout=LIMIT)
                with pytest.raises(cluster.RemoteError):
                    net.request("fails", b"", timeout=LIMIT)
            until(lambda: not left())
        finally:
            gc.enable()
