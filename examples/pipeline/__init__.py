"""The data pipeline: a feed over sockets into journals, Spark's tables of it, a report.

    python -m examples.pipeline --help          # in the root of the repository

`Job` runs the tables of `mqcore.spark.tables` over journals and those of `hours`, `compare`
holds the application's result against plain pandas, `Cluster` is a standalone Spark on this
machine; the other modules are the steps of the run. README.md beside this file is the guide.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from examples.pipeline.cluster import Cluster, ClusterFailed
    from examples.pipeline.job import Job
    from examples.pipeline.truth import Comparison, compare

__all__ = ["Cluster", "ClusterFailed", "Comparison", "Job", "compare"]

# loaded on first use: producers and collectors are processes without Spark
HOMES = {"Cluster": "cluster", "ClusterFailed": "cluster", "Comparison": "truth", "Job": "job",
         "compare": "truth"}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
