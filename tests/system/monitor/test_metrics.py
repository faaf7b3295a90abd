"""Metrics: Prometheus, OpenTelemetry, the exporter, and the dashboard that reads them."""

import contextlib
import gc
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from monitored import child, end
from programs import environment, run, starter
from programs import mq as command
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

import mqcore as mq
from mqcore import bridge, journal, monitor
from mqcore.base.components import COMPONENTS, State
from mqcore.cli import exporter
from mqcore.cli.top import slowest
from mqcore.monitor import metrics, otel
from mqcore.monitor.metrics import FRESH, METRICS, Source, values
from mqcore.monitor.prometheus import Collector
from mqcore.monitor.rates import Rates

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "docs" / "assets" / "grafana.json"
GUIDE = ROOT / "docs" / "guides" / "monitoring.md"
NAME = re.compile(r"mqcore_\w+")
LIMIT = 60


@pytest.fixture
def context():
    with mq.Context() as made:
        yield made


@pytest.fixture
def traffic(context):
    """Two sockets, ten messages of three bytes sent, seven received."""
    pull = mq.Pull(bind="inproc://x", context=context)
    push = mq.Push(connect="inproc://x", context=context)
    for _ in range(10):
        push.send(b"abc")
    for _ in range(7):
        pull.recv()
    yield pull, push
    pull.close(0)
    push.close(0)


def on_terminal(*words):
    """What a program prints there until it ends."""
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, *map(str, words)], stdin=slave, stdout=slave,
                          stderr=slave, env=environment()), open(master, "rb", buffering=0) as file:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):      # EIO: the program has ended
            while data := file.read(65536):
                seen += data
    return seen.decode()


def exported(text):
    """{name: [(labels, value)]} of an exposition."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def scraped(collector):
    registry = CollectorRegistry()
    registry.register(collector)
    return exported(generate_latest(registry).decode())


def value(found, metric, **labels):
    one, = (value for have, value in found[metric] if labels.items() <= have.items())
    return one


def test_prometheus_has_the_counters_of_stats(context, traffic):
    found = scraped(Collector(context))
    sent, received = "mqcore_socket_sent_messages_total", "mqcore_socket_received_messages_total"
    assert value(found, sent, pattern="push", endpoint="inproc://x") == 10
    assert value(found, received, pattern="pull") == 7
    queued = sum(n for _, n in found["mqcore_socket_queued_messages"])
    assert queued == 3
    assert value(found, "mqcore_socket_peers", pattern="pull") == 1
    assert value(found, "mqcore_socket_endpoints", pattern="pull") == 1
    assert value(found, "mqcore_context_sockets") == 2


def test_drops_have_reasons(context):
    pull = mq.Pull(bind="inproc://x", context=context)
    push = mq.Push(connect="inproc://x", context=context)
    push.send(b"abc")
    pull.close()
    report = push.close(0)
    pub = mq.Pub(bind="inproc://news", send_hwm=1, context=context)
    sub = mq.Sub(topics=b"", connect="inproc://news", recv_hwm=1, context=context)
    pub.wait_subscribers(b"", timeout=30)
    for _ in range(50):
        pub.send(b"x")
    found = scraped(Collector(context))
    dropped = {labels["reason"]: n for labels, n in found["mqcore_socket_dropped_messages_total"]
               if labels["pattern"] == "pub"}
    assert dropped == pub.stats().peers[next(iter(pub.peers()))].dropped
    assert dropped["full"] > 0 and report is not None
    sub.close()
    pub.close()


def test_latencies_are_histograms():
    with mq.Context(histograms=True) as context:
        pull = mq.Pull(bind="inproc://x", context=context)
        push = mq.Push(connect="inproc://x", context=context)
        for _ in range(5):
            push.send(b"x")
            pull.recv(timeout=60)
        found = scraped(Collector(context))
        total = pull.histograms()["received"]
        buckets = [(float(labels["le"]), n)
                   for labels, n in found["mqcore_socket_latency_seconds_bucket"]
                   if labels["stage"] == "received"]
        assert [bound for bound, _ in buckets] == sorted({bound for bound, _ in buckets})
        counts = [n for _, n in buckets]
        assert counts == sorted(counts) and counts[-1] == total.count == 5
        assert value(found, "mqcore_socket_latency_seconds_count", stage="received") == 5
        assert value(found, "mqcore_socket_latency_seconds_sum", stage="received") == total.sum
        row, = [row for row in Rates().update(Source(context).seen().shots) if row.latencies]
        assert row.pattern == "pull" and row.latencies["received"].count == 5
        assert row.latencies["received"].p99 == total.percentile(99)
        assert slowest(row.latencies).endswith(("ns", "us", "ms", "s"))
        rates, source = Rates(), Source(context)
        rates.update(source.seen().shots)
        assert not any(row.latencies for row in rates.update(source.seen().shots))
        context.close(0)


def test_opentelemetry_has_counts_and_sums_of_latencies():
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    with mq.Context(histograms=True) as context:
        pull = mq.Pull(bind="inproc://x", context=context)
        push = mq.Push(connect="inproc://x", context=context)
        push.send(b"x")
        pull.recv(timeout=60)
        measured = otel.instrument(context, provider=provider)
        found = {metric.name: metric for resource in reader.get_metrics_data().resource_metrics
                 for scope in resource.scope_metrics for metric in scope.metrics}
        point, = found["mqcore.socket.latency.count"].data.data_points
        assert point.value == 1 and point.attributes["mqcore.latency.stage"] == "received"
        point, = found["mqcore.socket.latency.sum"].data.data_points
        assert point.value == pull.histograms()["received"].sum
        measured.close()
        context.close(0)
    provider.shutdown()


def test_names_follow_the_conventions():
    for metric in METRICS:
        assert re.fullmatch(r"mqcore_[a-z_]+", metric.prometheus)
        assert metric.prometheus.endswith("_total") == (metric.kind == "counter")
        assert ("_bytes" in metric.prometheus) == (metric.unit == "By")
        assert re.fullmatch(r"mqcore(\.[a-z]+)+", metric.opentelemetry)
        assert metric.doc.endswith(".")
    assert len({metric.prometheus for metric in METRICS}) == len(METRICS)


def test_queues_bridges_and_devices_are_measured(context, tmp_path):
    with journal.open(tmp_path / "log", "a", topic="x") as log:
        log.append(b"a message that Redis should get")
    with journal.serve_queues(tmp_path, "tcp://127.0.0.1:0", context=context) as server, \
            journal.queue(server.urls[0], "resize", context=context) as queue, \
            mq.device(mq.Pull(bind="inproc://a", context=context),
                      mq.Push(bind="inproc://b", context=context)), \
            mq.Push(connect="inproc://a", context=context) as source, \
            mq.Pull(connect="inproc://b", context=context) as sink, \
            bridge.Bridge(f"journal:{tmp_path}/log?topic=x&group=g",
                          "redis://127.0.0.1:1?stream=x"):
        queue.put_many([b"1", b"2"])
        job = queue.get(timeout=LIMIT)
        source.send(b"x")
        sink.recv(timeout=LIMIT)
        registry = CollectorRegistry()
        registry.register(Collector(context))

        def value(name, **labels):
            found = [sample.value for family in registry.collect() for sample in family.samples
                     if sample.name == name and labels.items() <= sample.labels.items()]
            return found[0] if found else None

        until(lambda: value("mqcore_component_failing", component="bridge") == 1, pause=FRESH)
        assert value("mqcore_queue_jobs", which=f"resize of {tmp_path}", status="ready") == 1
        assert value("mqcore_queue_jobs", status="held") == 1
        assert value("mqcore_queue_events_total", event="put") == 2
        assert value("mqcore_bridge_connected", side="target") == 0
        assert value("mqcore_bridge_messages_total", event="received") == 1
        until(lambda: value("mqcore_device_messages_total", direction="forth") == 1, pause=FRESH)
        assert value("mqcore_component_failing", component="queue") == 0
        job.ack()
    mq.Context.default().close(0)


class Copier:
    def __init__(self, forth):
        self.forth = forth
        self.answers = True

    def _mq_components(self):
        return [State("device", "copier", "failed", "no ink", {"forth": self.forth})] \
            if self.answers else []


def test_counters_of_components_of_one_name_never_go_down():
    moment = iter(range(100))
    with mq.Context() as context:
        source = Source(context, clock=lambda: next(moment))
        metric, = (one for one in METRICS if one.name == "device.messages")
        failing, = (one for one in METRICS if one.name == "component.failing")

        def forth():
            return {labels[2]: value for labels, value in values(metric, source.seen())
                    if labels[3] == "forth"}.get("copier")

        first, second = Copier(100), Copier(50)
        COMPONENTS.add(first)
        COMPONENTS.add(second)
        assert forth() == 150
        assert [value for labels, value in values(failing, source.seen())
                if labels[2] == "copier"] == [2]
        first = None
        gc.collect()
        assert forth() == forth() == 150
        second.forth = 60
        assert forth() == 160
        second.answers = False
        assert forth() is None
        second.answers = True
        assert forth() == 160           # a missed look is no restart
        second = None
        gc.collect()
        assert forth() is None


def test_counters_that_no_look_finds_are_forgotten(context, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_KEPT", 0)
    moment = iter(range(100))
    source = Source(context, clock=lambda: next(moment))
    copiers = [Copier(5), Copier(5)]
    for copier in copiers:
        COMPONENTS.add(copier)
    source.seen()
    del copier
    copiers.pop()
    gc.collect()
    assert sum(source.seen().ended.values()) == 5
    copiers[0].answers = False
    source.seen()
    assert not source.seen().ended and not source._latest


def test_registering_does_not_look():
    collector = Collector()
    try:
        collector._source.seen = None      # a look would fail
        CollectorRegistry().register(collector)
    finally:
        collector.close()


def test_looks_are_shared(context, traffic):
    now = [0.0]
    source = Source(context, lambda: now[0])
    first = source.seen()
    assert source.seen() is first
    now[0] += FRESH
    assert source.seen() is not first


@pytest.mark.parametrize("wrong", [1, [], "ipc://x", [1]])
def test_a_wrong_source_is_refused(wrong):
    with pytest.raises(mq.UsageError, match="a Context"):
        Collector(wrong)


def test_a_closed_context_has_no_series(context, traffic):
    collector = Collector([context])
    context.close(0)
    assert scraped(collector) == {}


def test_a_forked_child_has_no_series_of_its_parent(context, traffic):
    collector = Collector(context)
    number = os.fork()
    if not number:
        status = 1
        try:
            status = 0 if scraped(collector) == {} else 2
        finally:
            os._exit(status)
    assert os.waitpid(number, 0)[1] == 0
    assert scraped(collector)


def test_opentelemetry_has_the_same(context, traffic):
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    measured = otel.instrument(context, provider=provider)

    def read():
        data = reader.get_metrics_data()
        return {} if data is None else {
            metric.name: metric for resource in data.resource_metrics
            for scope in resource.scope_metrics for metric in scope.metrics}

    found = read()
    assert found.keys() >= {"mqcore.socket.sent.messages", "mqcore.socket.queued.messages",
                            "mqcore.context.sockets"}
    points = {point.attributes["mqcore.socket.pattern"]: point.value
              for point in found["mqcore.socket.sent.messages"].data.data_points}
    assert points == {"push": 10, "pull": 0}
    assert found["mqcore.socket.sent"].unit == "By"
    measured.close()
    assert not any(metric.data.data_points for metric in read().values())
    provider.shutdown()


def test_the_dashboard_reads_what_is_exported(context, traffic):
    dashboard = json.loads(DASHBOARD.read_text())
    known = {metric.prometheus: set(metric.labels) for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            known |= {f"{metric.prometheus}_{end}": {*metric.labels, "le"}
                      for end in ("bucket", "count", "sum")}
    used = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            names = set(NAME.findall(expression))
            assert len(names) == 1
            used |= names
            labels = known[names.pop()]
            for group in re.findall(r"by \(([^)]*)\)", expression):
                assert set(group.split(", ")) <= labels
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels
            assert set(re.findall(r"{(\w+)=~", expression)) <= labels
    variable = dashboard["templating"]["list"][1]["query"]["query"]
    assert set(NAME.findall(variable)) <= known.keys()
    assert used <= known.keys()
    assert set(scraped(Collector(context))) <= known.keys()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_guide_lists_all_metrics():
    listed = set(re.findall(r"^\| `(mqcore_\w+)`", GUIDE.read_text(), re.M))
    assert listed == {metric.prometheus for metric in METRICS}


def test_the_exporter_serves_all_processes_of_the_user():
    processes = [child(MQCORE_MONITOR="1") for _ in range(2)]
    try:
        with starter() as start:
            exporter = start(*command("metrics", "--bind", "127.0.0.1:0"))
            url = exporter.line("err").split()[-1]
            wanted = {str(process.pid) for process in processes}
            pids = set()
            while pids != wanted:       # under load one may answer later
                with urllib.request.urlopen(url, timeout=60) as page:
                    found = exported(page.read().decode())
                pids = {labels["pid"] for labels, _ in found.get("mqcore_context_sockets", ())}
            status, _, err = exporter.end(signal.SIGINT)
            assert status == 130
            assert "Traceback" not in err
    finally:
        for process in processes:
            end(process)


def test_a_connection_that_asks_for_nothing_is_closed(monkeypatch, context, traffic, capsys):
    monkeypatch.setattr(exporter, "IDLE", 0.2)
    registry = CollectorRegistry()
    registry.register(Collector(context))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        exporter.limit(server)
        with contextlib.ExitStack() as stack:
            for request in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"):
                sock = stack.enter_context(socket.create_connection(server.server_address, 60))
                sock.sendall(request)
                assert sock.recv(1) == b""
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics",
                                    timeout=60) as answer:
            assert b"mqcore_socket_sent_messages_total" in answer.read()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert capsys.readouterr().err == ""


def test_once_prints_them():
    """What the page has, of whatever a program has chosen as its name."""
    name = 'quoted "\n \x1b[2J\x9b\u202e\r'
    with mq.Context(monitor=monitor.Publish(name=name)) as context, \
            mq.Pull(bind="inproc://x", context=context):
        status, out, err = run(*command("metrics", "--once"))
        assert (status, err) == (0, "")
        assert value(exported(out.decode()), "mqcore_context_sockets", name=name) == 1


def test_once_obeys_no_control_characters_on_a_terminal():
    with mq.Context(monitor=monitor.Publish(name="\x1b[2J\x7f\x9b\u202e\u2066\r\t")) as context, \
            mq.Pull(bind="inproc://x", context=context):
        seen = on_terminal(*command("metrics", "--once"))
    assert r'name="\x1b[2J\x7f\x9b\x202e\x2066\x0d\x09"' in seen
    assert all(line.isprintable() for line in seen.split("\r\n"))


@pytest.mark.parametrize(("where", "status"), [("nonsense", 2), ("127.0.0.1:99999", 2),
                                               ("192.0.2.1:9464", 1)])
def test_a_wrong_address_is_explained(where, status):
    found, _, err = run(*command("metrics", "--bind", where))
    assert found == status
    assert where.split(":")[0] in err and "Traceback" not in err


def test_a_missing_library_names_the_extra():
    code = ("import sys; sys.modules['prometheus_client'] = None; "
            "from mqcore.__main__ import main; sys.argv[1:] = ['metrics', '--once']; main()")
    status, _, err = run("-c", code)
    assert status == 1
    assert 'pip install "mqcore[metrics]"' in err and "Traceback" not in err
    code = ("import sys; sys.modules['opentelemetry'] = None\n"
            "import mqcore as mq\n"
            "try:\n    from mqcore.monitor import otel\n"
            "except mq.NotSupported as error:\n    print(error)")
    status, out, _ = run("-c", code)
    assert b'pip install "mqcore[metrics]"' in out


def test_a_closed_client_has_no_series():
    with mq.Context(monitor=True):
        client = monitor.Client()
        collector = Collector(client)
        assert scraped(collector)
        client.close()
        collector._source._until = 0.0
        with mq.Context(monitor=True):      # one that the client does not know
            assert scraped(collector) == {}


def test_a_context_that_is_named_twice_is_measured_once(context, traffic):
    found = scraped(Collector([context, context]))
    assert len(found["mqcore_context_sockets"]) == 1


def test_opentelemetry_goes_on_without_a_client_that_was_closed():
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    with mq.Context(monitor=True) as context, mq.Pull(bind="inproc://x", context=context):
        client = monitor.Client()
        measured = otel.instrument(client, provider=provider)
        assert reader.get_metrics_data() is not None
        client.close()
        measured._source._until = 0.0
        with mq.Context(monitor=True):      # one that the client does not know
            data = reader.get_metrics_data()
        assert data is None or not any(
            metric.data.data_points for resource in data.resource_metrics
            for scope in resource.scope_metrics for metric in scope.metrics)
        measured.close()
    provider.shutdown()
