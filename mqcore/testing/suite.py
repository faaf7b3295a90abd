"""What the conformance suites share: which tests apply to a plug-in, and waiting.

A test declares its requirements with pytest's markers. The suite compares them with the plug-in's
own table and skips the test, with the declared reason, if something is missing. Any other skip
becomes a failure (mqcore/testing/plugin.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from mqcore.testing.plugin import DECLARED

LIMIT = 20.0  # seconds for what takes milliseconds

#: examples of each hypothesis test; MQCORE_EXAMPLES sets another number
EXAMPLES = int(os.environ.get("MQCORE_EXAMPLES", "0"))

live = pytest.mark.mq_live


def needs(*capabilities: str) -> Callable[[Any], Any]:
    """A test that only plug-ins with all of these can pass."""
    return pytest.mark.mq_needs(*capabilities)


class Suite:
    """Base of both; tells pytest which of its tests apply."""

    mq_suite: ClassVar[bool] = True

    def gaps(self) -> Mapping[str, str]:
        """What the plug-in lacks, by name, with the reason."""
        raise NotImplementedError

    def unavailable(self) -> str:
        """Why nothing live can be tested on this system, "" if it can."""
        return ""

    @pytest.fixture
    def mq_installed(self) -> None:
        """To be overridden where no distribution brings the plug-in: `with installed(...)`."""

    @pytest.fixture(autouse=True)
    def mq_applies(self, request: pytest.FixtureRequest, mq_installed: None) -> None:
        item = request.node
        if item.get_closest_marker("mq_live") is not None and (why := self.unavailable()):
            self._declare(item, why)
        gaps = self.gaps()
        for mark in item.iter_markers("mq_needs"):
            for name in mark.args:
                if name in gaps:
                    self._declare(item, f"{name!r} is a declared gap: {gaps[name]}")

    def _declare(self, item: pytest.Item, why: str) -> None:
        item.stash[DECLARED] = why
        pytest.skip(why)
