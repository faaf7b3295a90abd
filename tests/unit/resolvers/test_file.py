"""What a file says, and when it is looked at."""

import os
import select

import pytest

from mqcore.errors import AddressError
from mqcore.resolvers.file import SIZE_MAX, FolderWatch, resolver


@pytest.fixture
def path(tmp_path):
    return tmp_path / "peers"


def read(path, data):
    path.write_bytes(data)
    return resolver.look_up(str(path), {})


@pytest.mark.parametrize(("data", "expected"), [
    (b"", []), (b"\n\n# nobody\n", []), (b"tcp://a:1", ["tcp://a:1"]),
    (b"  tcp://a:1?prio=2\t# why\r\n#x\ntcp://b:2\n", ["tcp://a:1?prio=2", "tcp://b:2"]),
    (b"ipc:///tmp/a#b\n", ["ipc:///tmp/a#b"]),  # a # within a word is no comment
    (b"ipc:///tmp/\xff\n", ["ipc:///tmp/\udcff"]), (b"tcp://a:1\n" * 3, ["tcp://a:1"] * 3),
])
def test_lines(path, data, expected):
    assert read(path, data) == expected


def test_a_malformed_line_is_named(path):
    with pytest.raises(AddressError, match="line 3: 'tcp:/b:2', position 0: no '://'"):
        read(path, b"# two\ntcp://a:1\ntcp:/b:2\n")


def test_what_is_no_file_of_urls(path, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        resolver.look_up(str(path), {})
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):  # and it does not wait for a writer
        resolver.look_up(str(path), {})
    with pytest.raises(OSError, match="Is a directory|no regular file"):
        resolver.look_up(str(tmp_path), {})
    path.unlink()
    with pytest.raises(OSError, match=f"more than {SIZE_MAX} bytes"):
        read(path, b"#" * (SIZE_MAX + 1))


def test_addresses():
    resolver.check("/a/b")
    with pytest.raises(AddressError, match="at the root; write file:///") as caught:
        resolver.check("peers")
    assert caught.value.position == 0
    with pytest.raises(AddressError, match="a file's name is missing") as caught:
        resolver.check("/a/")
    assert caught.value.position == 3


# -- the watch -------------------------------------------------------------------------------------


@pytest.fixture
def watch(path):
    watch = resolver.watch(str(path), {})
    assert isinstance(watch, FolderWatch) and not os.get_inheritable(watch.fileno())
    yield watch
    watch.close()


def told(watch):
    """inotify tells before the call that changed something returns."""
    return bool(select.select([watch], [], [], 0)[0]) and watch.read()


def test_every_way_a_file_changes(watch, path, tmp_path):
    assert not told(watch)
    path.write_text("x")
    assert told(watch) and not told(watch)
    fresh = tmp_path / "fresh"
    fresh.write_text("y")
    assert not told(watch)  # another file
    fresh.rename(path)
    assert told(watch)
    with path.open("a") as file:
        file.write("z")
        file.flush()
        assert not told(watch)  # somebody is writing
    assert told(watch)
    path.rename(fresh)
    assert told(watch)
    fresh.rename(path)
    assert told(watch)
    path.unlink()
    assert told(watch)


def test_a_folder_that_goes(tmp_path):
    folder = tmp_path / "gone"
    with pytest.raises(OSError, match="No such file"):
        resolver.watch(str(folder / "peers"), {})
    folder.mkdir()
    watch = resolver.watch(str(folder / "peers"), {})
    folder.rmdir()
    with pytest.raises(OSError, match="the folder is gone"):
        told(watch)
    watch.close()
