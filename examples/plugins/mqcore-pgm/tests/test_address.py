"""Addresses, interfaces, and errors at open that need no libpgm."""

import socket

import mqcore_pgm
import pytest
from mqcore_pgm import epgm, pgm

from mqcore import AddressError, BindError, UsageError
from mqcore.spi.multicast import find_interface

GOOD = ["239.192.1.1:5555", "eth0;224.0.0.1:5555", "127.0.0.1;239.192.1.1:5555",
        "10.9.0.0/24;239.192.1.1:5555", "eth0;[ff12::5]:5555", "[::1];[ff12::5]:5555"]
BAD = {"": 0, "224.0.0.1": 9, "eth0;10.0.0.1:5555": 5, "eth0;name:5555": 5, "eth0;239.1.1.1:x": 15,
       ";239.1.1.1:5555": 0, "eth0;239.1.1.1:0": 15}


@pytest.mark.parametrize("transport", [epgm, pgm], ids=["epgm", "pgm"])
@pytest.mark.parametrize("address", GOOD)
def test_the_forms_of_an_address(transport, address):
    transport.check(address, "bind")
    transport.check(address, "connect")


@pytest.mark.parametrize("address", BAD)
def test_a_bad_address_is_refused_with_its_position(address):
    with pytest.raises(AddressError) as caught:
        epgm.check(address, "connect")
    assert caught.value.position == BAD[address]


def test_a_group_has_a_port():
    with pytest.raises(AddressError, match="the same in all programs"):
        epgm.check("eth0;239.1.1.1:0", "bind")


def test_interfaces_by_name_address_and_network():
    group = ("239.192.1.1", 5555)
    found = {find_interface(front, socket.AF_INET, group)
             for front in ("lo", "127.0.0.1", "127.0.0.0/8")}
    assert {(at.sockaddr[0], at.number) for at in found} == {
        ("127.0.0.1", socket.if_nametoindex("lo"))}


@pytest.mark.parametrize("front", ["nosuch0", "198.51.100.77", "198.51.100.0/24"])
@pytest.mark.parametrize("way", ["bind", "connect"])
def test_an_interface_that_is_not_there(front, way, monkeypatch, mq_context):
    monkeypatch.setattr(mqcore_pgm.Pgm, "unavailable", lambda self: "")
    sub = mq_context.socket("sub")
    with pytest.raises(BindError) as caught:
        getattr(sub, way)(f"epgm://{front};239.192.1.1:5555")
    assert f"{front} is no interface of this machine" in str(caught.value)
    assert sub.endpoints == ()


def test_patterns_that_have_no_direction_are_refused(mq_context):
    with pytest.raises(UsageError, match="cannot carry a push socket"):
        mq_context.socket("push").connect("epgm://lo;239.192.1.1:5555")


def test_without_the_library_the_error_says_what_to_install(monkeypatch, mq_context):
    monkeypatch.setattr(mqcore_pgm.Pgm, "unavailable",
                        lambda self: f"libpgm cannot be used; {mqcore_pgm.INSTALL}")
    with pytest.raises(BindError, match="apt-get install libpgm"):
        mq_context.socket("sub").bind("epgm://lo;239.192.1.1:5555")
