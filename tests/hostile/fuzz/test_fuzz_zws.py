"""Seeds and a short run of mutants, the same ones each time. Longer runs are made by hand."""

from itertools import islice

import fuzz_zws
import pytest
from fuzz_mutate import inputs


def test_seeds():
    for data in fuzz_zws.seeds():
        fuzz_zws.traffic(data)


def test_mutants():
    for data in islice(inputs(fuzz_zws.seeds(), seed=1), 1500):
        fuzz_zws.traffic(data)


def test_a_broken_rule_is_seen(monkeypatch):
    """The target can fail: a decoder that loses a PONG when fed byte by byte is noticed."""
    decode = fuzz_zws.decode

    def lossy(listening, limit, text, step, **how):
        status, reason, parts, answers, counts = decode(listening, limit, text, step, **how)
        return status, reason, parts, answers[:-1] if step == 1 else answers, counts

    monkeypatch.setattr(fuzz_zws, "decode", lossy)
    with pytest.raises(AssertionError):
        fuzz_zws.traffic(b"\0\x89\0\x82\x02\0x")
