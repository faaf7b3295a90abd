"""examples/README.md lists every program, application and plug-in that is there, and no other."""

import re

from sources import ROOT, tracked

FOLDER = ROOT / "examples"


def things():
    """The programs, and the folders of programs, as the page writes them."""
    found = set()
    for path in tracked(ROOT):
        if not path.is_relative_to(FOLDER):
            continue
        first, *rest = path.relative_to(FOLDER).parts
        if first == "plugins":
            found.add(rest[0])
        elif rest:
            found.add(f"{first}/")
        elif path.suffix == ".py":
            found.add(first)
    return found


def test_the_page_lists_what_is_there():
    text = (FOLDER / "README.md").read_text()
    listed = set(re.findall(r"`([\w-]+\.py|[\w-]+/|mqcore-[\w-]+)`", text)) - {"plugins/"}
    assert listed == things()
