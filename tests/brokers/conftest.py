"""What tests over real brokers share."""

import brokers
import pytest

import mqcore as mq


@pytest.fixture
def broker(tmp_path):
    """make(kind): a broker of that URL scheme, started. All end with the test."""
    made = []

    def make(kind):
        made.append(brokers.KINDS[kind](tmp_path / f"{kind}{len(made)}"))
        return made[-1].start()

    yield make
    for one in made:
        one.close()
    mq.Context.default().close(0)
