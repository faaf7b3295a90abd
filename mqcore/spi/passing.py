"""Failures of an import that lie with the process, not with what is imported."""

import errno
import os

# the process is short of something: as errno, and as the loader of extensions says it
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
SAYS_SHORT = (*map(os.strerror, SHORT), "failed to map segment")


def is_passing(cause: BaseException) -> bool:
    """Whether the next try may succeed: descriptors or memory were short."""
    return isinstance(cause, MemoryError) or \
        isinstance(cause, OSError) and cause.errno in SHORT or \
        isinstance(cause, ImportError) and any(words in str(cause) for words in SAYS_SHORT)
