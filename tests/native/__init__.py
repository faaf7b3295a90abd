"""Cython that only tests and benchmarks use: `mqcore.testing.native` in development builds.

The modules drive parts of the data plane from Python, count what they do, and stress them with
threads of their own. A wheel has none of them, nor has any install that is not editable.
"""
