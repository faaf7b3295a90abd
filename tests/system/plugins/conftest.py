"""Plug-ins from outside: installed by pip, used by programs whose only mqcore is an installed one.

    def test_it(installed, examples):
        plugins = installed.add(examples / "mqcore-sctp")
        assert installed.ask("import json, mqcore; print(json.dumps(...))", plugins) == ...
"""

from pathlib import Path

import pytest
from installed import Installed
from sources import ROOT


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def examples() -> Path:
    """The distributions that are examples of plug-ins."""
    return ROOT / "examples" / "plugins"
