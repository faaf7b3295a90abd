"""file:///path: a text file of URLs, one a line; what stands behind a # is a comment.

    # the workers of this week
    tcp://10.0.0.7:5555
    tcp://10.0.0.9:5555?prio=2      # the slow one

Changes are seen at once (inotify on the folder, so that a new file moved into the old one's place
counts), and every `refresh` seconds the file is read whatever inotify says: network file systems do
not tell of what other machines write. Move a finished file into place, or a reader may come
while half of it is there. A missing or malformed file is a failed look-up and changes nothing; one
without a URL is an empty set.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from mqcore.base.inotify import (
    CLOSE_WRITE,
    DELETE,
    IGNORED,
    MOVED_FROM,
    MOVED_TO,
    OVERFLOW,
    inotify_add,
    inotify_events,
    inotify_open,
)
from mqcore.errors import AddressError
from mqcore.spi import url
from mqcore.spi.resolver import Options, Resolver

SIZE_MAX = 1 << 20  # bytes; a longer file is a mistake
COMMENT = re.compile(r"(^|\s)#.*")


class FolderWatch:
    """A file of this name in the folder was written, moved in, moved out or removed."""

    def __init__(self, path: str) -> None:
        folder, name = os.path.split(os.fsencode(path))
        self.name = name
        self._fd = inotify_open()
        try:
            inotify_add(self._fd, folder, CLOSE_WRITE | MOVED_FROM | MOVED_TO | DELETE)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bool:
        hit = False
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return hit
            for _, mask, name in inotify_events(data):
                if mask & IGNORED:
                    raise OSError(errno.ENOENT, "the folder is gone")
                hit = hit or bool(mask & OVERFLOW) or name == self.name

    def close(self) -> None:
        os.close(self._fd)


def _open_at_once(path: str, flags: int) -> int:
    """A pipe is opened without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


class File(Resolver):
    scheme = "file"
    doc = "URLs in a text file, one a line"

    def check(self, address: str) -> None:
        if not address.startswith("/"):
            raise AddressError("the path must start at the root",
                               hint=f"write file://{os.path.abspath(address)}")
        if address.endswith("/"):
            raise AddressError("this is a folder, a file's name is missing",
                               position=len(address))

    def look_up(self, address: str, options: Options) -> list[str]:
        found, wrong = self._read(address)
        if wrong:
            raise wrong[0]
        return found

    def look_up_part(self, address: str, options: Options) -> tuple[list[str], str]:
        found, wrong = self._read(address)
        more = f" ({len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return found, f"{wrong[0].text}{more}" if wrong else ""

    def _read(self, address: str) -> tuple[list[str], list[AddressError]]:
        """The URLs, and what is wrong with the other lines."""
        with open(address, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            data = file.read(SIZE_MAX + 1)
        if len(data) > SIZE_MAX:
            raise OSError(errno.EFBIG, f"it has more than {SIZE_MAX} bytes")
        found: list[str] = []
        wrong: list[AddressError] = []
        for number, line in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
            text = COMMENT.sub("", line).strip()
            if text:
                try:
                    url.parse(text)
                except AddressError as error:
                    error.text = f"line {number}: {error.text}"
                    wrong.append(error)
                else:
                    found.append(text)
        return found, wrong

    def watch(self, address: str, options: Options) -> FolderWatch:
        return FolderWatch(address)


resolver = File()
