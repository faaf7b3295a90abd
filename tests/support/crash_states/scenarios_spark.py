"""Spark's ledger and staged files, without Spark."""
SPARK = ()
