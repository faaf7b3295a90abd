"""transports/README.md followed word for word: its commands are run, its changes made, in order.

`$ command` in a console block is run in a fresh folder where mqcore is installed; a diff block is a
change of the file that it names: lines with " " and "-" must be there, once, and become those with
" " and "+".
"""

import re
import shlex

import pytest
from sources import ROOT

GUIDE = ROOT / "transports" / "README.md"
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.M | re.S)


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """The headings with commands below them, and the blocks: (language, file, text)."""
    parts = re.split(r"^## (.*)$", GUIDE.read_text(), flags=re.M)
    found = {title: BLOCK.findall(text)
             for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {title: blocks for title, blocks in found.items()
            if any(language == "console" for language, _, _ in blocks)}


class Reader:
    """Somebody who does what the page says, in an empty folder."""

    def __init__(self, installed, folder):
        self.installed = installed
        self.folder = folder
        self.plugins = []

    def change(self, file, text):
        lines = [(line[:1] or " ", line[1:]) for line in text.rstrip("\n").split("\n")]
        old = "\n".join(line for sign, line in lines if sign in " -")
        new = "\n".join(line for sign, line in lines if sign in " +")
        path = self.folder / file
        source = path.read_text()
        assert source.count(old) == 1, f"{file} has this {source.count(old)} times:\n{old}"
        path.write_text(source.replace(old, new))

    def follow(self, command):
        words = shlex.split(command)
        if words[:2] == ["pip", "install"]:
            assert words[2] == "--no-build-isolation"
            self.plugins = self.installed.add_again(self.folder / words[-1])
            return ""
        arguments = ["-m", "mqcore", *words[1:]] if words[0] == "mq" else words[1:]
        assert words[0] in ("mq", "python"), command
        if "pytest" in arguments:
            arguments[2:2] = ["-p", "no:cacheprovider", "--rootdir", str(self.folder)]
        done = self.installed.run(*arguments, plugins=self.plugins, cwd=self.folder)
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-4000:]}"
        return done.stdout


@pytest.mark.parametrize("title", sections())
def test_what_the_guide_says_works(installed, tmp_path, title):
    reader = Reader(installed, tmp_path)
    for language, file, text in sections()[title]:
        if language == "diff":
            reader.change(file, text)
            continue
        assert language == "console", language
        for line in text.splitlines():
            sign, _, command = line.partition(" ")
            assert sign == "$", line
            out = reader.follow(command)
            if command == "mq info":
                [name] = [path.parent.name for path in tmp_path.glob("*/pyproject.toml")]
                assert re.search(rf"^\w+ +{name} +mqcore-{name} ", out, re.M), out
                assert "REFUSED" not in out


def test_each_door_has_its_walk():
    assert len(sections()) == 3
    assert all("mq plugin new" in str(blocks) for blocks in sections().values())


def test_the_files_it_speaks_of_are_there():
    text = GUIDE.read_text()
    named = set(re.findall(r"`((?:mqcore|examples|protocols)/[\w/.-]+\.\w+)`", text))
    assert len(named) > 5 and [name for name in named if not (ROOT / name).exists()] == []
