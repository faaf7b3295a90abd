"""The pipeline: a feed over sockets into journals, and Spark's tables of it.

`tables` has functions on DataFrames for anybody's streams, `Job` runs them over journals, `compare`
holds the application's result against plain pandas, `Cluster` is a standalone Spark on this
machine. README.md beside this file is the guide.
"""

from __future__ import annotations

from mqcore.spark.pipeline.cluster import Cluster, ClusterFailed
from mqcore.spark.pipeline.job import Job
from mqcore.spark.pipeline.truth import Comparison, compare

__all__ = ["Cluster", "ClusterFailed", "Comparison", "Job", "compare"]
