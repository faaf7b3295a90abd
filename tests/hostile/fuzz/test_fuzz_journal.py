"""What has ended servers before, and a short run of made-up requests, the same ones each time.
MQCORE_FUZZ_JOURNAL=1000000 makes it a long one; fuzz_journal.py as a program prints its pace and
memory."""

import json
import os
import random

import fuzz_journal
import pytest
from fuzz_journal import Bed, message, run, seeds

from mqcore.journal.server import requests
from mqcore.journal.server.answers import Answers

COUNT = int(os.environ.get("MQCORE_FUZZ_JOURNAL", "4000"))


@pytest.fixture
def bed(tmp_path):
    with Bed(tmp_path) as made:
        yield made


def test_seeds(bed):
    for raw in seeds():
        bed.batch([[raw]])
    bed.check()


@pytest.mark.timeout(300 + COUNT / 500)
def test_made_up_requests(bed):
    run(bed, COUNT, seed=1)


def test_decoding_raises_one_error_only():
    rng, pool = random.Random(3), seeds()
    good = 0
    for _ in range(20_000):
        try:
            good += isinstance(requests.decode(message(rng, pool)), requests.Request)
        except requests.Malformed as error:
            assert error.number is None or 0 <= error.number < 1 << 62
            assert str(error).isprintable() and len(str(error)) < 1000
    assert good > 1000


def test_a_broken_rule_is_seen(bed, monkeypatch, caplog):
    """The target can fail: a server that trips over one kind of request is noticed."""
    monkeypatch.setattr(Answers, "_commit", lambda *_: {}["not there"])
    with caplog.at_level("CRITICAL", "mqcore.journal"), pytest.raises(AssertionError):
        bed.batch([[json.dumps(dict(fuzz_journal.GOOD, op="commit", id=1)).encode()]])
        bed.check()
