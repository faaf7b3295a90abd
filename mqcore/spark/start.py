"""Sessions: a local one with the settings that were found to be needed, and registering."""

from __future__ import annotations

import os
import sys
from typing import Any

from mqcore.spark.needs import need_java
from mqcore.spark.source import MqcoreSource

# quiet, offline, on loopback; users override any of it
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def register(spark: Any) -> None:
    """Make format("mqcore") known to this session. Needed only where Spark does not find it by
    itself: in an editable install, or where another `pyspark_*` module cannot be imported."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(MqcoreSource)
    except AnalysisException as error:  # 4.0 refuses what it has found by itself
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def session(master: str = "local[*]", **settings: str) -> Any:
    """A SparkSession whose workers run this interpreter, with format("mqcore") registered.

    settings: Spark's, with "_" for ".": session(spark_driver_memory="1g"). Raises NotSupported
    without Java.
    """
    need_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)     # else: the first one on the PATH
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("mqcore")
    wanted = {**LOCAL, **{name.replace("_", "."): value for name, value in settings.items()}}
    for name, value in wanted.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
