import random

from mqcore.link.backoff import Backoff


def test_steps_double_to_the_maximum_and_start_over():
    backoff = Backoff(0.1, 1.0, rng=lambda: 1.0)
    assert [round(backoff.next(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next() == 0.1


def test_jitter_is_between_half_and_all():
    backoff = Backoff(1.0, 1.0, rng=random.Random(7).random)
    waits = [backoff.next() for _ in range(1000)]
    assert 0.5 <= min(waits) < 0.52 and 0.98 < max(waits) <= 1.0


def test_a_maximum_below_the_start_means_constant():
    backoff = Backoff(2.0, 0.5, rng=lambda: 1.0)
    assert [backoff.next(), backoff.next()] == [2.0, 2.0]
