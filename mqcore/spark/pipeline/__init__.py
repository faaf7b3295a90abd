"""The data pipeline: a feed over sockets, journalled, read by Structured Streaming, reported.

    python -m mqcore.spark.pipeline --help

Every step is a module that can be used alone; README.md beside this file is the guide. `tables` has
functions on DataFrames for anybody's streams, `Job` runs them over journals, `compare` holds the
application's result against plain pandas, `Cluster` is a standalone Spark on this machine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqcore.spark.pipeline.cluster import Cluster, ClusterFailed
    from mqcore.spark.pipeline.job import Job
    from mqcore.spark.pipeline.truth import Comparison, compare

__all__ = ["Cluster", "ClusterFailed", "Comparison", "Job", "compare"]

# imported when they are first asked for: producers and collectors need neither Spark nor pandas
_WHERE = {"Cluster": "cluster", "ClusterFailed": "cluster", "Job": "job", "Comparison": "truth",
          "compare": "truth"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
