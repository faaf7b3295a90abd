"""Spark reads journals and writes journals and sockets: `format("mqcore")`.

    df = spark.read.format("mqcore").option("path", "/data").option("subscribe", "flights").load()

An installed mqcore is found by Spark itself; `register(spark)` does the same for one session, and
importing this module does it for the active one. README.md beside this file has every option.
"""

from __future__ import annotations

from typing import Any

from mqcore.spark.needs import need_java, need_pyspark

need_pyspark()

from mqcore.spark.source import MqcoreSource  # noqa: E402
from mqcore.spark.start import register, session  # noqa: E402

__all__ = ["MqcoreSource", "need_java", "register", "session"]


def _register_active() -> None:
    from pyspark.sql import SparkSession

    active: Any = SparkSession.getActiveSession()
    if active is not None:
        register(active)


_register_active()
