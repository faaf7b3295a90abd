"""Plug-ins in Cython are compiled against the installed mqcore: what they need ships with it, and
one that was compiled for another mqcore is refused in words."""

import pytest
from installed import Installed, make_image
from sources import ROOT, shipped

PXD = "mqcore/spi/pattern.pxd"
ABI = "PATTERN_ABI = 5"


def test_every_declaration_ships(installed):
    """What `test_packaging` finds in a real wheel is what plug-ins were compiled against here."""
    for path in shipped(suffixes={".pxd"}):
        folder, *rest = path.relative_to(ROOT).parts
        inside = rest if folder == "mqcore" else [folder, *rest]
        assert installed.site.joinpath("mqcore", *inside).exists(), path


@pytest.fixture(scope="module")
def future(tmp_path_factory):
    """The same mqcore, but for the ABI number of patterns."""
    return Installed(tmp_path_factory.mktemp("future"), {PXD: (ABI, "PATTERN_ABI = 6")})


@pytest.mark.slow
def test_one_compiled_for_another_abi_is_refused(installed, future):
    [plugin] = future.add(ROOT / "tests" / "data" / "sample_plugin")
    program = """
import json
import mqcore as mq
try:
    mq.socket("blackhole")
except mq.PluginError as error:
    told = [str(error), error.distribution, error.remedy]
with mq.Pull(bind="inproc://x") as pull, mq.Push(connect="inproc://x") as push:
    push.send(b"works")
    told.append(pull.recv(timeout=20).decode())
print(json.dumps(told))
"""
    text, distribution, remedy, works = installed.ask(program, [plugin])
    assert "was made for ABI 6, this mqcore has 5" in text and works == "works"
    assert distribution == "mqcore-sample-plugin 1.0" and remedy == "update mqcore"


def test_an_edit_that_finds_nothing_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="has no 'no such line'"):
        make_image(tmp_path, {PXD: ("no such line", "")})
