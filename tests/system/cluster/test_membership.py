"""The cluster's membership in virtual time: joining, leaving, dying, partitions, slow nodes.

MQCORE_ROUNDS: further rounds of partitions and kills, each with its own seed; MQCORE_SEED: where
they begin.
"""

import gc
import os

import pytest
from cluster_simulation import KEY, Network

from mqcore.cluster.gossip.messages import Claim
from mqcore.cluster.membership import Config, State

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "1"))
SEED = int(os.environ.get("MQCORE_SEED", "1"))


def cluster(count, **settings):
    net = Network(**settings)
    nodes = net.many(count)
    assert net.run(10, until=net.converged) is not None, sizes(net)
    return net, nodes


def sizes(net):
    return sorted(len(node.membership.members()) for node in net.running())


# -- joining -------------------------------------------------------------------------------------

@pytest.mark.slow
def test_a_thousand_nodes_converge():
    """All start within 100 ms and know one of them. Five packets a node and second at most, in the
    start and afterwards."""
    net = Network(seed=SEED, keep=False)
    net.many(1000)
    gc.disable()        # it would look at a million records again and again
    try:
        took = net.run(3, until=net.converged, every=0.25)
        assert took is not None and took <= 3, sizes(net)[::50]
        assert net.rate((0, 0.0)) <= 5
        then = net.mark()
        net.run(0.5)
        assert net.rate(then) <= 5
    finally:
        gc.enable()
    assert net.converged()
    assert net.counts["joined"] == 1000 * 999 and not net.counts["suspected"]


def test_the_steady_state_is_quiet():
    net, nodes = cluster(50)
    net.run(30)
    then = net.mark()
    syncs = net.counts["syncs"]
    net.run(60)
    assert 1.5 <= net.rate(then) <= 2.5         # a ping and an ack
    assert net.counts["syncs"] - syncs <= 50 * 4
    assert net.converged() and not net.events("suspected")
    assert all(not len(node.membership._broadcasts) for node in nodes)


def test_two_nodes_and_one():
    net = Network()
    first = net.add()
    net.run(3)
    assert net.converged() and first.events == []
    second = net.add()
    assert net.run(1, until=net.converged) is not None
    assert [event.kind for event in second.events] == ["joined"]
    assert second.events[0].record == first.membership.me


def test_joining_without_links():
    """Where no exchange ever succeeds, gossip alone carries the records."""
    net = Network(seed=2)
    net._link = lambda *_: None
    net.many(20)
    assert net.run(20, until=net.converged) is not None, sizes(net)


def test_joining_and_staying_with_loss():
    """A fifth of all datagrams is lost: suspicions come and go, and nobody is buried."""
    net = Network(seed=3, loss=0.2)
    net.many(30)
    assert net.run(5, until=lambda: set(sizes(net)) == {30}) is not None, sizes(net)
    net.run(60)
    assert net.events("recovered") and not net.events("failed")
    net.loss = 0.0
    assert net.run(30, until=net.converged) is not None


def test_a_seed_that_comes_later():
    net = Network()
    late = net.add(seeds=[("n2", 7400)])
    net.run(10)
    assert len(late.membership.members()) == 1
    net.add(seeds=[])
    assert net.run(5, until=net.converged) is not None


def test_a_node_that_is_its_own_seed():
    net = Network()
    node = net.add(seeds=[("n1", 7400)])
    net.add(seeds=[("n1", 7400), ("n9", 7400)])
    assert net.run(5, until=net.converged) is not None
    assert not node.membership.refused["malformed"]


def test_other_keys_do_not_join():
    net, nodes = cluster(5)
    stranger = net.add(keys=[bytes(32)])
    stranger.membership._seal._wall = nodes[0].membership._seal._wall
    net._link = lambda *_: None         # links would refuse it in their handshake
    net.run(20)
    assert len(stranger.membership.members()) == 1
    assert net.converged(nodes) and nodes[0].membership.refused["seal"] > 0


def test_keys_rotate_without_a_pause():
    net, nodes = cluster(8)
    new = bytes([7]) * 32
    for keys in ([KEY, new], [new, KEY], [new]):
        for node in nodes:
            node.membership.set_keys(keys)
            net.run(0.5)
        net.run(5)
    assert net.converged() and not net.events("suspected")
    assert not any(node.membership.refused["seal"] for node in nodes)


def test_a_banned_node_is_out_and_stays_out():
    net, nodes = cluster(6)
    banned = nodes[3]
    others = [node for node in nodes if node is not banned]
    for node in others:
        node.membership.set_banned([banned.id])
    net.run(20)
    assert net.converged(others)
    assert all(node.membership.state(banned.id) is None for node in others)
    assert all(node.membership.refused["banned"] for node in others)


# -- leaving and dying ---------------------------------------------------------------------------

def test_a_graceful_leave_is_no_failure():
    net, nodes = cluster(20)
    leaver = nodes[7]
    leaver.membership.leave()
    net._collect(leaver)
    assert net.run(10, until=lambda: leaver.membership.departed) is not None
    net.kill(leaver)
    assert net.run(5, until=net.converged) is not None
    net.run(30)
    assert {observer for observer, _ in net.events("left")} == {n.number for n in net.running()}
    assert not net.events("failed") and not net.events("suspected")
    assert nodes[0].membership.state(leaver.id) is State.LEFT


def test_a_node_that_leaves_and_dies_at_once():
    net, nodes = cluster(20)
    nodes[7].membership.leave()
    net._collect(nodes[7])
    net.kill(nodes[7])
    assert net.run(10, until=net.converged) is not None
    assert not net.events("failed")


@pytest.mark.parametrize("seed", range(SEED, SEED + 3 * ROUNDS))
def test_killed_nodes_are_found(seed):
    """Detected soon, and by everybody: the shortest suspicion is 4 s * log10(members)."""
    net, nodes = cluster(30, seed=seed, loss=0.01)
    for node in net.chance.sample(nodes, 3):
        net.kill(node)
    killed = {node.number for node in nodes if not node.alive}
    took = net.run(30, until=net.converged)
    assert took is not None and took < 25
    assert {subject for _, subject in net.events("failed")} == killed


def test_a_broken_link_hastens_detection():
    took = []
    for hint in (False, True):
        net, nodes = cluster(5)
        net.run(3)
        net.kill(nodes[4])
        if hint:
            for node in net.running():
                node.membership.suspect_link(nodes[4].id)
                net._collect(node)
        net.run(10, until=lambda: net.events("suspected"), every=0.02)
        took.append(net.now)
    assert took[1] < took[0]


def detected(how):
    """Of nine nodes, all die but one, whose links break: the seconds until it takes all of them
    for dead, and its health then."""
    net, nodes = cluster(9, seed=5)
    net.run(3)
    for node in nodes[1:]:
        net.kill(node)
    begun = net.now
    for node in nodes[1:]:
        getattr(nodes[0].membership, how)(node.id)
    net._collect(nodes[0])
    assert net.run(300, until=lambda: len(net.events("failed")) == 8, every=0.1) is not None
    return net.now - begun, nodes[0].membership.health


def test_the_last_of_many_finds_the_others_dead():
    """Nobody is left to confirm it; that nothing listens at their addresses needs no confirmation,
    and says nothing of this node's own health."""
    took, health = detected("refused_link")
    assert took < 6 and health == 0
    took, health = detected("suspect_link")
    assert took > 24 and health > 0


def test_a_death_is_no_stop():
    """The first death must not pass for a stop of this node, whose whole life would not count
    against those who are suspect."""
    net, nodes = cluster(4)
    net.run(1000)
    net.kill(nodes[2])
    net.kill(nodes[3])
    nodes[0].membership.refused_link(nodes[2].id)
    net._collect(nodes[0])
    assert net.run(60, until=net.converged) is not None
    assert not any(node.membership.counters["stopped"] for node in net.running())


def test_an_accuser_that_makes_a_suspicion_end_in_the_past_is_no_stop():
    net, nodes = cluster(9, seed=5)
    net.run(3)
    for node in nodes[1:]:
        net.kill(node)
        nodes[0].membership.suspect_link(node.id)
    net._collect(nodes[0])
    net.run(100, until=lambda: net.events("suspected"), every=0.1)
    net.run(10)     # longer than the shortest time
    assert not net.events("failed")
    suspect = net.events("suspected")[0][1]
    target = next(node for node in nodes if node.number == suspect)
    table = nodes[0].membership._table
    for accuser in [node for node in nodes[1:] if node is not target][:3]:
        table.claim(Claim(target.id, table.members[target.id].incarnation, State.SUSPECT,
                          accuser.id), net.now)
    net._collect(nodes[0])
    net.run(1)
    assert len(net.events("failed")) == 1
    assert not nodes[0].membership.counters["stopped"]


def test_a_refusal_that_comes_late_leaves_the_whole_shortest_time():
    net, nodes = cluster(9, seed=5)
    net.run(3)
    net.kill(nodes[4])
    nodes[0].membership.suspect_link(nodes[4].id)
    for node in nodes[1:]:      # nobody else says anything of it
        if node is not nodes[4]:
            net.kill(node)
    net._collect(nodes[0])
    net.run(60, until=lambda: net.events("suspected"), every=0.1)
    net.run(10)
    nodes[0].membership.refused_link(nodes[4].id)
    net._collect(nodes[0])
    net.run(3)
    assert (0, nodes[4].number) not in net.events("failed")
    net.run(2)
    assert nodes[4].number in {subject for _, subject in net.events("failed")}


def test_a_member_whose_address_refuses_may_say_that_it_lives():
    """Something in between turns connections away."""
    net, nodes = cluster(5)
    net.run(3)
    nodes[0].membership.refused_link(nodes[4].id)
    net._collect(nodes[0])
    net.run(20)
    assert net.events("suspected") and net.events("recovered")
    assert not net.events("failed") and net.converged()


def test_a_link_that_answers_clears_a_member():
    """The ping over a link, SWIM's last resort where datagrams are dropped."""
    net = Network()
    nodes = net.many(4)
    net.run(5, until=net.converged)
    deaf = nodes[2]
    deliver = net._deliver
    net._deliver = lambda node, address, data: deaf in (node, net.by_address[address]) or \
        deliver(node, address, data)
    asked = set()

    def answer():
        for node in net.running():
            # what _collect throws away, taken before: ask again each time
            probe = node.membership._detector._probe
            if probe is not None:
                asked.add(probe.target)
                node.membership.heard(probe.target)
        return False
    net.run(60, until=answer, every=0.1)
    assert deaf.id in asked and net.converged() and not net.events("failed")


def test_a_node_that_comes_back_is_seen():
    """Under its old id, at its old address, without memory: its incarnation is its clock's."""
    net, nodes = cluster(10)
    node = nodes[4]
    net.kill(node)
    net.run(30)
    assert (1, 5) in net.events("failed")
    twin = type(node)(net, node.number, [nodes[0].address], net.config, "", [KEY])
    net.nodes[4] = net.by_address[twin.address] = twin
    net._schedule(net.now, twin)
    assert net.run(10, until=net.converged) is not None
    assert net.events("joined").count((1, 5)) == 2


# -- Lifeguard -----------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_a_slow_node_neither_kills_nor_dies(seed):
    """It is stopped for 1 to 3 s again and again (Dadgar et al. 2017, section V)."""
    net, nodes = cluster(30, seed=seed)
    slow = nodes[11]
    end = net.now + 90
    while net.now < end:
        stopped = net.chance.uniform(1, 3)
        net.stop(slow, stopped)
        net.run(stopped + net.chance.uniform(0.2, 1))
    assert net.events("suspected")              # it was slow enough to be noticed
    assert not net.events("failed")
    assert slow.membership.counters["stopped"] > 5
    net.run(60)
    assert net.converged() and slow.membership.health <= 1


def test_without_lifeguard_it_does():
    """The test above can fail: a suspicion that is short kills the slow node."""
    net, nodes = cluster(30, config=Config(alpha=0.5, beta=1))
    for _ in range(20):
        net.stop(nodes[11], 3)
        net.run(3.2)
    assert net.events("failed")


def test_everybody_slow():
    net, nodes = cluster(12, seed=5)
    for _ in range(40):
        net.stop(net.chance.choice(nodes), net.chance.uniform(0.5, 2.5))
        net.run(0.7)
    net.run(60)
    assert net.converged() and not net.events("failed")


# -- partitions ----------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(SEED, SEED + 8 * ROUNDS))
def test_a_partition_heals(seed):
    """30 s apart, long enough that each side has buried the other; one view within 10 s."""
    count = (2, 5, 12, 24)[seed % 4]
    net, nodes = cluster(count, seed=seed, loss=0.01)
    cut = net.chance.randrange(1, count)
    sides = nodes[:cut], nodes[cut:]
    net.partition(*sides)
    net.run(30)
    # each side has begun to bury the other
    assert {observer <= cut for observer, _ in net.events("suspected")} == {True, False}
    net.heal()
    took = net.run(10, until=net.converged)
    assert took is not None, (count, cut, sizes(net))
    net.run(10)
    assert net.converged()


def test_a_node_that_was_alone_for_long():
    net, nodes = cluster(10)
    net.partition(nodes[:9], nodes[9:])
    net.run(1800)
    assert net.converged(nodes[:9]) and net.converged(nodes[9:])
    net.heal()
    assert net.run(10, until=net.converged) is not None


# -- metadata ------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [0, 10, 700, 900, 16 << 10])
def test_metadata_reach_everybody(size):
    net, nodes = cluster(20)
    net.run(40)
    meta = bytes(size)
    nodes[3].membership.update(meta=meta, zone="eu-2")
    net._collect(nodes[3])

    def there():
        return all(record.meta == meta and record.zone == "eu-2" for node in nodes
                   for record in node.membership.members() if record.id == nodes[3].id)
    assert net.run(10, until=there) is not None
    updated = {observer for observer, subject in net.events("updated") if subject == 4}
    assert updated == {node.number for node in nodes} - {4}
    assert not net.events("failed")


def test_the_last_of_many_updates_wins():
    net, nodes = cluster(15, loss=0.1)
    for number in range(30):
        nodes[2].membership.update(meta=b"%d" % number)
        net._collect(nodes[2])
        net.run(0.2)
    net.run(20)
    assert net.converged()
    assert {record.meta for node in nodes for record in node.membership.members()
            if record.id == nodes[2].id} == {b"29"}


@pytest.mark.parametrize("fields", [
    {"meta": bytes((16 << 10) + 1)}, {"host": ""}, {"host": "h" * 129},
    {"port": 65536}, {"zone": "z" * 129}, {"link": "l" * 129},
    {"host": "\u20ac" * 128, "link": "\u20ac" * 128, "zone": "\u20ac" * 128},
])
def test_records_that_cannot_be_spread(fields):
    net = Network()
    node = net.add()
    before = node.membership.me
    with pytest.raises(ValueError):
        node.membership.update(**fields)
    assert node.membership.me == before


def test_it_does_the_same_again():
    """Same seed, same cluster: what a failure prints can be run again."""
    def run():
        net = Network(seed=9, loss=0.05)
        net.many(10)
        net.run(3)
        net.kill(net.nodes[3])
        net.run(20)
        return [(n.number, e.kind, e.time) for n in net.nodes for e in n.events], net.counts
    assert run() == run()
