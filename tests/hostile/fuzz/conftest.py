"""Lets the tests of this folder import the targets beside them, as running them by hand does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
