"""Plug-ins that are installed while a test lasts, and the tables that say what plug-ins can do."""

import re
from pathlib import Path

import pytest

import mqcore as mq
from mqcore.spi import capability, registry
from mqcore.spi.transport import StreamTransport
from mqcore.testing import ScriptedTransport, installed


def test_installed_and_gone():
    fake = ScriptedTransport("fake")
    with installed("transport", fake):
        assert registry.transport("fake") is fake
        [info] = [i for i in mq.transports() if i.name == "fake"]
        assert (info.distribution, info.refused) == ("a test", "")
    with pytest.raises(mq.UnknownTransport):
        registry.transport("fake")


def test_a_taken_name_and_a_bad_plugin_are_refused():
    with pytest.raises(mq.PluginError, match="mqcore and a test"), \
            installed("transport", ScriptedTransport("tcp")):
        pass
    bad = ScriptedTransport("bad")
    bad.abi = 99
    for _ in range(2):
        with pytest.raises(mq.PluginError, match="ABI 99"), installed("transport", bad):
            pass
    with pytest.raises(mq.UnknownTransport):
        registry.transport("bad")


def test_its_options_go_with_it():
    class Coloured(ScriptedTransport):
        options = (("colour", "int", 3, "a number"),)

    class Otherwise(ScriptedTransport):
        options = (("colour", "bool", True, "means something else"),)

    with installed("transport", Coloured("one")):
        assert [row.name for row in registry.transport_options("one")] == ["colour"]
        with pytest.raises(mq.PluginError, match="both claim"), \
                installed("transport", Otherwise("two")):
            pass
    with installed("transport", Otherwise("two")):
        pass


class Partial(StreamTransport):
    scheme = "partial"
    capabilities = frozenset({"pid"})
    gaps = {"many": "one at a time", "refused": "nobody says no"}


def test_what_a_transport_has_and_has_not():
    has = capability.capabilities_of(Partial())
    assert "pid" in has and "reliable" in has and not has & {"many", "refused", "wildcard"}
    gaps = capability.declared_gaps(Partial())
    assert gaps["many"] == "one at a time" and "wildcard" in gaps["wildcard"] or gaps["wildcard"]
    assert "network" not in gaps, "a fact that others have is no gap"
    assert capability.complaints(Partial()) == [] and capability.unavailable(Partial()) == ""


def test_a_table_that_is_wrong():
    plugin = Partial()
    plugin.capabilities = frozenset({"pid", "many", "magic"})
    plugin.gaps = {"many": "", "speed": "slow"}
    assert capability.complaints(plugin) == [
        "no capability is called 'magic'", "no capability is called 'speed'",
        "'many' is both promised and a gap", "the gap 'many' has no reason"]


def test_the_flags_are_those_of_the_header():
    header = Path(capability.__file__).with_name("pattern.pxd").read_text()
    bits = {int(n) for n in re.findall(r"^    PAT_(?!ALL)\w+ = (\d+)", header, re.M)}
    assert {bit for bit, _, _ in capability.PATTERN_FLAGS} == bits
    push = capability.pattern_capabilities(registry.pattern("push"))
    assert {"sends", "waits", "reroutes"} <= push and "receives" not in push
