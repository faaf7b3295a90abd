"""Random topologies, of which links break and addresses move: every message that close() calls
written is read once, or counted. See tests/support/topologies.py."""

import pytest
import topologies

RUNS = 15           # of each kind; make test-full does 10,000 in all


@pytest.mark.parametrize("kind", topologies.KINDS)
def test_what_is_written_is_read_or_counted(kind, seed):
    for n in range(RUNS):
        topologies.run(seed + n, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", topologies.KINDS)
def test_ten_thousand_topologies(kind, seed):
    for n in range(10_000 // len(topologies.KINDS)):
        topologies.run(seed + n, kind)
