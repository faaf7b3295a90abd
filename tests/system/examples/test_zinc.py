"""Zinc, examples/zinc: a document that many endpoints edit, under loss, kills and partitions."""

import asyncio
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import mqcore as mq

ZINC = Path(__file__).resolve().parents[3] / "examples" / "zinc"
LIMIT = 100.0
EDITS = 1000


@pytest.fixture(scope="module", autouse=True)
def zinc():
    """The modules of the example, which import each other by their plain names."""
    sys.path.insert(0, str(ZINC))
    import document
    import endpoint

    yield endpoint
    sys.path.remove(str(ZINC))
    for module in (document, endpoint):
        del sys.modules[module.__name__]


@pytest.fixture(autouse=True)
def _no_default_context():
    yield
    mq.Context.default().close(0)


class Line:
    """The network between endpoints: it loses 1 % and delays by up to 50 ms. `cut`: ids of a part
    that nothing reaches, and that reaches nothing outside."""

    def __init__(self, loss=0.01, jitter=0.05):
        self.random = random.Random(77)
        self.loss, self.jitter, self.cut, self.lost = loss, jitter, set(), 0

    def __call__(self, sender, receiver):
        if (sender in self.cut) != (receiver in self.cut) or self.random.random() < self.loss:
            self.lost += 1
            return None
        return self.random.uniform(0, self.jitter)


class Tree:
    """Endpoints in this process. `stack` ends them."""

    def __init__(self, zinc, stack, folder, scheme="tcp", **options):
        self.zinc, self.stack, self.folder, self.scheme = zinc, stack, folder, scheme
        self.options = options
        self.all = []

    def pair(self):
        if self.scheme == "tcp":
            return ["tcp://127.0.0.1:0"] * 2
        place = self.folder if self.scheme != "inproc" else self.folder.name
        return [f"{self.scheme}://{place}/{len(self.all)}-{kind}" for kind in ("pub", "pull")]

    async def add(self, host=None, **options):
        made = self.zinc.Endpoint(self.pair(), host and host.at, **{**self.options, **options})
        self.all.append(await self.stack.enter_async_context(made))
        return made

    async def three_levels(self):
        """12 endpoints: a root, three below it, eight below these."""
        root = await self.add()
        middle = [await self.add(root) for _ in range(3)]
        leaves = [await self.add(middle[i % 3]) for i in range(8)]
        await self.until(lambda: [len(one.path) for one in self.all] == [1] + [2] * 3 + [3] * 8)
        return root, middle, leaves

    async def until(self, condition):
        async def wait():
            while not condition():
                for one in self.all:
                    for task in one._tasks:
                        assert not task.done() or task.cancelled(), task.exception()
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), LIMIT)

    async def edit(self, count, among=None, seed=1):
        """Random edits, in bursts at all endpoints at once."""
        choose = random.Random(seed)
        for number in range(count):
            one = choose.choice(among or self.all)
            length = len(list(one.document.ids()))
            if length > 20 and choose.random() < 0.3:
                one.delete(choose.randrange(length - 3), 3)
            else:
                one.insert(choose.randint(0, length), choose.choice(["a", "bc", "é\n", "𝄞xyz"]))
            if number % 50 == 49:
                await asyncio.sleep(0.01)

    def same(self, among=None):
        return len({one.document.digest() for one in among or self.all}) == 1


def scene(zinc, tmp_path, **options):
    """Run the test's coroutine function with a Tree."""
    def decorated(function):
        async def main():
            async with AsyncExitStack() as stack:
                await function(Tree(zinc, stack, tmp_path, **options))

        asyncio.run(main())

    return decorated


@pytest.mark.parametrize("scheme", [
    "tcp", "shm", pytest.param("inproc", marks=pytest.mark.slow),
    pytest.param("ipc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("balanced", [False, True], ids=["given", "balanced"])
def test_all_copies_converge_over_a_lossy_network(zinc, tmp_path, scheme, balanced):
    line = Line()

    @scene(zinc, tmp_path, scheme=scheme, line=line, most=3 if balanced else 64)
    async def _(tree):
        if balanced:        # all ask the root, which takes three and passes the others down
            root = await tree.add()
            for _ in range(11):
                await tree.add(root)
                await tree.until(lambda: tree.all[-1].host_id)
            assert max(len(one.path) for one in tree.all) >= 3
        else:
            await tree.three_levels()
        await tree.edit(EDITS)
        await tree.until(tree.same)
        assert line.lost
        assert max(len(one.kids) for one in tree.all) <= (3 if balanced else 11)
        # each edit was applied once everywhere, at its author as well, whose echo was dropped
        assert {one.document.applied for one in tree.all} == {EDITS}
        assert all(one.document.echoes for one in tree.all if one.path[0] != one.id)
        assert len(tree.all[0].document.text()) > 100


def test_the_oldest_child_takes_the_place_of_a_dead_root(zinc, tmp_path):
    assert zinc.SILENCE + 2 * zinc.BEAT < 2.0       # seconds until there is a new root

    @scene(zinc, tmp_path, line=Line())
    async def _(tree):
        root, middle, leaves = await tree.three_levels()
        await tree.edit(300)
        await tree.until(lambda: all(one.acknowledged() for one in tree.all))
        vectors = {one.id: one.document.vector[one.id] for one in tree.all}
        oldest = next(one for one in middle if one.id == next(iter(root.kids)))
        await root.stop()
        tree.all.remove(root)
        await tree.until(lambda: oldest.promoted and not oldest.host)
        await tree.until(lambda: all(one.path[0] == oldest.id for one in tree.all))
        await tree.edit(100, seed=2)
        await tree.until(tree.same)
        final = oldest.document.vector
        assert all(final[author] >= number for author, number in vectors.items())
        assert sum(one.promoted for one in middle + leaves) == 1


def test_a_partition_heals(zinc, tmp_path):
    line = Line()

    @scene(zinc, tmp_path, line=line)
    async def _(tree):
        root, middle, _ = await tree.three_levels()
        away = [one for one in tree.all if one.path[1:2] == [middle[2].id]]
        near = [one for one in tree.all if one not in away]
        line.cut = {one.id for one in away}
        begun = asyncio.get_running_loop().time()
        await tree.edit(200, near, seed=3)
        await tree.edit(200, away, seed=4)
        await tree.until(lambda: middle[2].promoted and tree.same(near) and tree.same(away)
                         and asyncio.get_running_loop().time() - begun > 5.0)
        assert not tree.same()
        line.cut = set()
        await tree.until(tree.same)
        await tree.until(lambda: {one.path[0] for one in tree.all} == {root.id})
        assert len(away) >= 3 and tree.all[0].document.applied == 400


def test_a_slow_leaf_slows_no_other_and_catches_up(zinc, tmp_path):
    @scene(zinc, tmp_path, line=Line(0, 0), hwm=10)
    async def _(tree):
        root = await tree.add()
        middle = await tree.add(root)
        slow, quick = await tree.add(middle), await tree.add(middle)
        await tree.until(lambda: slow.host_id and quick.host_id)
        slow.held_up = True
        for number in range(10):
            await tree.edit(50, [root, middle, quick], seed=number)
            await tree.until(lambda: tree.same([root, middle, quick]))
        assert slow.document.applied < 500
        slow.held_up = False
        await tree.until(tree.same)


def test_a_late_joiner_gets_the_document_and_what_follows(zinc, tmp_path, monkeypatch):
    import document

    monkeypatch.setattr(document, "LOG", 20)

    @scene(zinc, tmp_path, line=Line(0, 0))
    async def _(tree):
        root, other = await tree.add(), None
        await tree.edit(200)
        assert "state" in root.document.since({})
        other = await tree.add(root)
        await tree.edit(10, [root], seed=2)
        await tree.until(tree.same)
        assert other.document.applied < 210        # of the older ones it got the result
        other.insert(0, "both ways")
        await tree.until(tree.same)


# -- the document ----------------------------------------------------------------------------------


def test_any_order_gives_the_same_text(zinc):
    from document import Document

    one, two = Document("0000000a"), Document("0000000b")
    edits = [one.insert(0, "hello"), two.insert(0, "world"), one.delete(1, 2)]
    edits += [two.insert(5, "!"), one.insert(0, "say ")]
    results = set()
    for seed in range(50):
        copy = Document("0000000c")
        shuffled = edits * 2
        random.Random(seed).shuffle(shuffled)
        for edit in shuffled:
            copy.offer([edit])
        assert copy.applied == len(edits) and not copy.held
        results.add((copy.text(), copy.digest()))
    assert len(results) == 1
    one.offer(edits), two.offer(edits)
    assert {(one.text(), one.digest()), (two.text(), two.digest())} == results
    assert one.echoes == 3 and two.echoes == 2


def test_edits_that_come_too_early_are_bounded(zinc, monkeypatch):
    import document

    monkeypatch.setattr(document, "HELD", 10)
    author, copy = document.Document("0000000a"), document.Document("0000000b")
    edits = [author.insert(0, "x") for _ in range(50)]
    copy.offer(edits[1:])
    assert len(copy.held) == 10 and copy.dropped == 39
    assert copy.offer(edits[:1]) == edits[:11]
    copy.offer(author.since(copy.vector)["edits"])
    assert copy.text() == author.text() and not copy.held
