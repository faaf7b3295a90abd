"""Seeds and a short run of mutants, the same ones each time. Longer runs are made by hand."""

from itertools import islice

import fuzz_sp
import pytest
from fuzz_mutate import inputs


def test_seeds():
    for data in fuzz_sp.seeds():
        fuzz_sp.traffic(data)


def test_mutants():
    for data in islice(inputs(fuzz_sp.seeds(), seed=1), 1500):
        fuzz_sp.traffic(data)


def test_a_broken_rule_is_seen(monkeypatch):
    """The target can fail: a decoder that loses a part when fed byte by byte is noticed."""
    decode = fuzz_sp.decode

    def lossy(kind, typed, limit, text, step, **how):
        status, reason, parts, hops = decode(kind, typed, limit, text, step, **how)
        return status, reason, parts[:-1] if step == 1 else parts, hops

    monkeypatch.setattr(fuzz_sp, "decode", lossy)
    with pytest.raises(AssertionError):
        fuzz_sp.traffic(b"\0" + fuzz_sp.header(0x50) + fuzz_sp.frame(b"x"))
