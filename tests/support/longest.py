"""Which files take long: those that `make test` leaves out, and the order of the others.

`SLOW` files run with `make test-full`: they start whole clusters of Spark, build distributions from
nothing, or run each benchmark. A single slow test has the mark itself.

A parallel run gives each worker a whole file at a time. If a long file begins last, the other
workers have nothing to do while it runs. `tools/steady.py --runs 1 --spinners 0` prints the seconds
of each file; what takes more than some ten of them belongs into a table, the longest first. Spark's
are never side by side: each starts many processes, and a Python that is slow to start is an error
to Spark.
"""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
# One worker has all of these, one after the other: nothing takes longer, so they begin first.
CHAIN = TESTS / "spark"
# Each of their tests is by itself, and the slow ones, which take minutes, begin next.
SINGLY = (
    "journal/test_crash_states.py",
    "system/accounting/test_topologies.py",
    "unit/suite/test_environment.py",
)
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
    "bridge/test_kafka.py",
    "system/docs/test_site.py",
    "system/lifecycle/test_half_closed.py",
    "system/cluster/test_calls.py",
    "system/transports/test_full_queues.py",
    "unit/testing/test_plugin.py",
    "hostile/bad_input/test_live_sockets.py",
    "system/stress/test_turmoil.py",
    "journal/test_failover.py",
    "system/cluster/test_strains.py",
    "system/docs/test_examples.py",
    "system/examples/test_demo.py",
    "system/examples/test_zinc.py",
    "system/transports/test_dead_peers.py",
    "system/cluster/test_membership.py",
    "peers/interop/test_sp_matrix.py",
    "unit/suite/test_suite.py",
    "system/monitor/test_hostile.py",
    "journal/test_fuzz.py",
    "system/examples/test_market.py",
    "peers/zmq/test_real.py",
    "system/cli/test_cat.py",
    "system/lifecycle/test_finalizers.py",
    "system/cli/test_cluster.py",
    "bridge/test_clients.py",
    "system/cli/test_doctor.py",
    "conformance/test_suites.py",
    "journal/test_promotion.py",
    "system/lifecycle/test_exit.py",
    "peers/zmq/test_guide.py",
    "system/examples/test_examples.py",
    "journal/test_members.py",
    "layout/test_source.py",
    "system/perf/test_queues.py",
    "journal/test_commit_expected.py",
    "conformance/test_patterns.py",
    "system/monitor/test_metrics.py",
    "system/console/test_page.py",
    "journal/test_queues.py",
    "system/api/test_survey.py",
    "system/lifecycle/test_shm.py",
    "journal/test_crash.py",
    "system/perf/test_journal.py",
    "journal/test_queues_kills.py",
    "system/perf/test_native.py",
    "hostile/bad_input/test_live_streams.py",
    "system/api/test_batches.py",
)
_RANKS = {TESTS / name: rank for rank, name in enumerate((*SLOW, *LONGEST))}
_SLOW = {TESTS / name for name in SLOW}
_SINGLY = {TESTS / name for name in SINGLY}


def rank(item):
    """The key by which the tests are sorted. It is equal for all tests of a file, which stay in
    order, but for the slow ones of SINGLY."""
    if item.path.parent == CHAIN:
        return -2
    if item.path in _SINGLY and slow(item):
        return -1
    return _RANKS.get(item.path, len(_RANKS))


def slow(item):
    return item.path in _SLOW or item.get_closest_marker("slow") is not None
