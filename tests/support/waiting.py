"""`until`, for the tests that know it from here."""

from mqcore.testing import until

__all__ = ["until"]
