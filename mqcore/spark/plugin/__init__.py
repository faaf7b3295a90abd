"""What Spark finds by itself: installed as the top-level module `pyspark_mqcore`.

On the first unknown format Spark imports every top-level module named pyspark_* and registers its
DefaultSource. Nothing else belongs here; mqcore.spark is the library.
"""

from mqcore.spark.source import DefaultSource

__all__ = ["DefaultSource"]
