"""Contexts that end with the test."""

import pytest

from mqcore.testing.keeper import Keeper


@pytest.fixture
def ctx():
    context = Keeper(linger=0.2, send_timeout=20, recv_timeout=20)
    yield context
    context.finish()


@pytest.fixture
def beside():
    """Runs functions in threads; they have ended when the test does, and what one raised is
    raised."""
    import threading

    errors, threads = [], []

    def start(function, *args):
        def run():
            try:
                function(*args)
            except BaseException as error:
                errors.append(error)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
