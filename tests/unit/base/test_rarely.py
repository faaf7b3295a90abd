"""A bound on what strangers make a server log."""

import logging

from mqcore.base.rarely import PAUSE, TEXTS, Rarely


def logged(now):
    """(log(text), what came through): a logger behind the filter, by the clock `now`."""
    found = []
    logger = logging.Logger("test")
    logger.addFilter(Rarely(lambda: now[0]))
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    logger.addHandler(handler)
    return logger.warning, found


def test_a_text_comes_through_once_in_a_while_and_says_how_many_did_not():
    now = [0.0]
    log, found = logged(now)
    for _ in range(5):
        log("no HTTP from %s", "a")
    log("too many")
    assert found == ["no HTTP from a", "too many"]
    now[0] += PAUSE
    log("no HTTP from %s", "b")
    log("too many")
    assert found[2:] == ["no HTTP from b (4 more like this were not logged)", "too many"]


def test_any_number_of_texts_takes_a_bounded_memory():
    now = [0.0]
    log, found = logged(now)
    for number in range(10 * TEXTS):
        log(f"text {number}")
    assert len(found) == 10 * TEXTS
