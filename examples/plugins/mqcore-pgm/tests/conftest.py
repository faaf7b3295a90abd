"""The tests' own modules (network.py) are found, however pytest imports test files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
