"""Which files take long: those that `make test` leaves out, and the order of the others.

`SLOW` files run with `make test-full`: they start whole clusters of Spark, build distributions from
nothing, or run each benchmark. A single slow test has the mark itself.

A parallel run gives each worker a whole file at a time. If a long file begins last, the other
workers have nothing to do while it runs. `tools/steady.py --runs 1 --spinners 0` prints the seconds
of each file; what takes more than some ten of them belongs into a table, the longest first. No
two of Spark's stand side by side: each starts many processes, and a Python that is slow to start is
an error to Spark.
"""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
SLOW = (
    "layout/test_packaging.py",
    "spark/test_servers.py",
    "spark/test_peer.py",
    "system/cluster/test_kills.py",
    "spark/test_kills.py",
    "system/plugins/test_guide.py",
    "system/plugins/test_examples.py",
    "spark/test_pipeline_job.py",
    "system/plugins/test_new.py",
    "spark/test_pipeline_report.py",
    "system/perf/test_versus.py",
    "spark/test_cluster.py",
    "system/perf/test_run.py",
    "spark/test_pipeline_feed.py",
    "system/perf/test_many.py",
    "system/perf/test_cluster_beside.py",
    "system/perf/test_console.py",
    "system/plugins/test_pattern_guide.py",
)
LONGEST = (
    "spark/test_spark.py",
    "unit/testing/test_plugin.py",
    "system/docs/test_examples.py",
    "system/docs/test_site.py",
    "system/docs/test_tutorial.py",
    "system/examples/test_demo.py",
    "system/stress/test_turmoil.py",
    "system/examples/test_market.py",
    "peers/zmq/test_real.py",
    "system/cli/test_cat.py",
    "system/cluster/test_calls.py",
    "system/cli/test_cluster.py",
    "system/stress/test_ypipe_stress.py",
    "system/cli/test_doctor.py",
    "layout/test_source.py",
    "conformance/test_suites.py",
    "system/transports/test_dead_peers.py",
    "system/lifecycle/test_shm.py",
    "system/monitor/test_hostile.py",
    "system/cluster/test_membership.py",
    "journal/test_kills.py",
    "system/lifecycle/test_exit.py",
    "conformance/test_patterns.py",
    "peers/interop/test_sp_matrix.py",
    "journal/test_crash.py",
    "journal/test_members.py",
    "system/perf/test_journal.py",
    "journal/test_queues_kills.py",
    "system/perf/test_native.py",
    "system/perf/test_queues.py",
    "hostile/bad_input/test_live_sockets.py",
    "hostile/bad_input/test_live_streams.py",
    "system/api/test_batches.py",
)
_RANKS = {TESTS / name: rank for rank, name in enumerate((*SLOW, *LONGEST))}
_SLOW = {TESTS / name for name in SLOW}


def rank(item):
    """The key by which the tests are sorted; equal for all tests of a file, which stay in order."""
    return _RANKS.get(item.path, len(_RANKS))


def slow(item):
    return item.path in _SLOW or item.get_closest_marker("slow") is not None
