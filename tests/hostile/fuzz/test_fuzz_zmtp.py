"""The corpus and a short run of mutants, the same ones each time. Longer runs are made by hand."""

from itertools import islice

import pytest
from fuzz_mutate import inputs, read_corpus
from fuzz_zmtp import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_corpus(name):
    corpus = read_corpus(name)
    assert len(corpus) >= 20
    for data in corpus:
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_mutants(name):
    for data in islice(inputs(read_corpus(name), seed=1), 1500):
        TARGETS[name](data)


def test_a_broken_rule_is_seen(monkeypatch):
    """The target can fail: a decoder that loses parts when fed byte by byte is noticed."""
    import fuzz_zmtp
    decode = fuzz_zmtp.decode

    def lossy(version, limit, text, step, **how):
        status, reason, parts, *rest = decode(version, limit, text, step, **how)
        return status, reason, parts[:-1] if step == 1 else parts, *rest

    monkeypatch.setattr(fuzz_zmtp, "decode", lossy)
    with pytest.raises(AssertionError):
        TARGETS["traffic"](b"\0\0\1a\0\1b")
