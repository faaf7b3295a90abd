"""The pytest that a test starts: without plug-ins whose import takes longer than such a run."""

import sys

LIGHT = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"]
PYTEST = [sys.executable, "-m", "pytest", *LIGHT]
