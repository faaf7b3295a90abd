"""Sockets that broken peers are let loose on."""

import pytest
from victim import Victim


@pytest.fixture
def victim(ctx):
    made = []

    def make(pattern, **options):
        made.append(Victim(ctx, pattern, **options))
        return made[-1]
    yield make
    for v in made:
        v.events.close()
        v.s = v.events = None
