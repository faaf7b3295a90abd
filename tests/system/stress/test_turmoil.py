"""The data plane under stress: see tests/support/turmoil.py. MQCORE_STRESS_SECONDS makes each
longer."""

import os

import pytest
import turmoil

SECONDS = float(os.environ.get("MQCORE_STRESS_SECONDS", "0.6"))
IPC = pytest.param("ipc", marks=pytest.mark.slow)     # the same engine as TCP's
KINDS = ["tcp", IPC, "shm", "inproc"]


@pytest.mark.parametrize("kind, io_threads", [
    ("tcp", 1), ("tcp", 3), ("ipc", 1), ("shm", 3), ("inproc", 1),
    pytest.param("ipc", 3, marks=pytest.mark.slow),
    pytest.param("shm", 1, marks=pytest.mark.slow)])
def test_tokens_circulate_in_order(kind, io_threads, seed):
    assert turmoil.tokens(seed, SECONDS, kind, io_threads=io_threads) > 100


@pytest.mark.parametrize("kind", ["tcp", IPC, "shm"])
def test_tokens_between_processes(kind, seed):
    assert turmoil.tokens_apart(seed, SECONDS + 0.5, kind) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_the_lead_goes_round(kind, seed):
    assert turmoil.followers(seed, SECONDS, kind) > 100


def test_contexts_ask_again(seed):
    assert turmoil.contexts(seed, SECONDS, "tcp") > 100


@pytest.mark.parametrize("kind", ["tcp", "inproc"])
def test_two_wires_strategies_and_providers_that_die(kind, seed):
    assert turmoil.wires(seed, SECONDS, kind) > 100


def test_surveys_at_once(seed):
    assert turmoil.surveys(seed, SECONDS, "ipc") > 100


def test_peers_that_are_held(seed):
    assert turmoil.held(seed, SECONDS, "tcp") > 100


@pytest.mark.parametrize("kind", ["tcp", IPC])
def test_links_that_prove_who_they_are(kind, seed):
    assert turmoil.sealed(seed, SECONDS, kind) > 50


def test_buses_pairs_and_subscribers(seed):
    assert turmoil.buses(seed, SECONDS, "tcp") > 100


@pytest.mark.parametrize("kind", KINDS)
def test_requests_through_a_device(kind, seed):
    assert turmoil.device(seed, SECONDS, kind) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_loops_lead_and_leave(kind, seed):
    assert turmoil.loops(seed, 2 * SECONDS, kind) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_many_producers_and_consumers(kind, seed):
    assert turmoil.crowd(seed, SECONDS, kind) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_senders_blocked_at_a_mark(kind, seed):
    assert turmoil.blocked(seed, SECONDS, kind) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_closing_under_load(kind, seed):
    assert turmoil.closing(seed, SECONDS, kind) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_connecting_and_binding_all_the_time(kind, seed):
    assert turmoil.storm(seed, SECONDS, kind) > 100


def test_peers_that_die(seed):
    assert turmoil.dying(seed, SECONDS + 0.5) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_wakers_write_nobody_elses_descriptor(kind, seed):
    assert turmoil.waking(seed, SECONDS, kind) > 100
