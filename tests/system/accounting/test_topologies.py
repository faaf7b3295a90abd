"""Random topologies, of which links break and addresses move: every message that close() calls
written is read once, or counted. See tests/support/topologies.py."""

import pytest
import topologies

PARTS = 5           # tests of a kind, for as many workers
RUNS = 15           # of each kind; make test-full does 10,000 in all


@pytest.mark.parametrize("kind", topologies.KINDS)
def test_what_is_written_is_read_or_counted(kind, seed):
    for n in range(RUNS):
        topologies.run(seed + n, kind)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", topologies.KINDS)
def test_ten_thousand_topologies(kind, part, seed):
    count = 10_000 // len(topologies.KINDS) // PARTS
    for n in range(count):
        topologies.run(seed + part * count + n, kind)
