"""The ring of shared memory between two real threads; see tests/native/ring_stress.pyx."""

import pytest
from mqcore.testing.native.ring_stress import stress


@pytest.mark.parametrize("batch", [1, 16, 300])
@pytest.mark.parametrize("ring", [4096, 1 << 16])
def test_all_arrives_in_order_and_every_sleep_has_one_wake_up(batch, ring):
    records = 100_000
    seen = stress(records, seed=batch, batch=batch, ring=ring)
    assert seen["received"] == records and not seen["wrong"] and not seen["lost"], seen
    # a sleeper that looks again in time may still be told: then the next sleep is short
    assert seen["wakes_reader"] >= seen["dozes"], seen
    assert seen["wakes_writer"] >= seen["blocks"], seen
    assert seen["blocks"] or ring > 4096, "the ring was never full"
