"""One Spark for all tests here, on two threads of this machine; without Java or pyspark they are
skipped, and say so. Modules without the fixture `spark` need pyspark alone."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import java
import pytest

from mqcore import journal

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))      # for examples.pipeline; last, so that mqcore is the one installed
WHY = "pip install mqcore[spark]" if importlib.util.find_spec("pyspark") is None else (
    "" if shutil.which("java") else "Spark needs Java: apt-get install openjdk-17-jre-headless")


def pytest_collection_modifyitems(items):
    here = str(Path(__file__).parent) + os.sep
    for item in items:
        if str(item.path).startswith(here):     # each item of a whole run passes here: be quick
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            names = getattr(item, "fixturenames", ())
            if "java_flags" in names:
                own = item.get_closest_marker("timeout")        # of the call alone: the first test
                limit = own.args[0] if own else 300             # waits for the archive
                item.add_marker(pytest.mark.timeout(limit, func_only=True), append=False)
                if WHY:
                    item.add_marker(pytest.mark.skip(reason=WHY))
            if "spark" in names:
                item.add_marker(pytest.mark.keeps(fds=4, why="py4j's pool of connections to Java"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    """What failed in Java is shown with its causes, which the message alone leaves out."""
    report = yield
    stack = getattr(call.excinfo.value, "_stackTrace", None) if call.excinfo else None
    if stack:
        report.sections.append(("Java", stack))
    return report


@pytest.fixture(scope="session")
def java_flags(request):
    """What every Java of these tests is started with; see support/java.py."""
    cache = getattr(request.config, "cache", None)
    return java.flags(cache.mkdir("java") if cache else None)


@pytest.fixture(scope="session")
def spark_home(java_flags, tmp_path_factory):
    return java.home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def quick_java(java_flags, spark_home):
    """For modules whose programs start a Java of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(java.VARIABLE, java_flags)
        patch.setenv("SPARK_HOME", spark_home)
        yield


@pytest.fixture
def pipeline_path(monkeypatch):
    """For programs that import examples.pipeline: they find it wherever they run."""
    from examples.pipeline.processes import search_path
    monkeypatch.setenv("PYTHONPATH", search_path())


@pytest.fixture(scope="session")
def spark(java_flags, spark_home, tmp_path_factory):
    """Spark finds the format by itself: nothing is registered. Its plans are not compiled but where
    a test wants it (`compiled`)."""
    place = tmp_path_factory.mktemp("spark")
    (place / "found").mkdir()
    # an editable install is an import hook, which has no list of modules; a wheel needs no link
    (place / "found" / "pyspark_mqcore").symlink_to(ROOT / "mqcore" / "spark" / "plugin")
    before = dict(os.environ)
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1",
                      SPARK_LOCAL_DIRS=str(place), SPARK_HOME=spark_home,
                      **{java.VARIABLE: java_flags},
                      PYTHONPATH=os.pathsep.join(
                          [str(place / "found"), str(ROOT), before.get("PYTHONPATH", "")]))
    from pyspark.sql import SparkSession
    settings = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g", "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.driver.extraJavaOptions": "-Dlog4j2.level=error",
        "spark.sql.python.filterPushdown.enabled": "true", "spark.sql.session.timeZone": "UTC",
        **java.PLAIN}
    builder = SparkSession.builder.master("local[2,4]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    os.environ.clear()                      # Java has it; other folders' tests come after these
    os.environ.update(before)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()
    gateway = made.sparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
    type(made.sparkContext)._gateway = type(made.sparkContext)._jvm = None


@pytest.fixture
def compiled(spark):
    """Plans are compiled, as they are by default."""
    for name in java.PLAIN:
        spark.conf.unset(name)
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    yield
    for name, value in java.PLAIN.items():
        spark.conf.set(name, value)


def children(pid):
    """Of the process: (pid, command line)."""
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid=,args="], capture_output=True,
                           text=True).stdout
    return [(int(line.split()[0]), line) for line in found.splitlines()]


@pytest.fixture
def task_workers(spark):
    """Calls give the pids of the Python processes that run tasks now: forked by a daemon that Java
    has started. Spark tries a task four times here."""
    java = spark.sparkContext._gateway.proc.pid
    return lambda: [worker for daemon, line in children(java)
                    if line.endswith("pyspark.daemon pyspark.worker")
                    for worker, _ in children(daemon)]


@pytest.fixture
def where(tmp_path):
    """flights|0 with offsets 0 to 99, flights|1 with 0 to 9, weather|0 with 0 to 4."""
    for topic, partition, n in (("flights", 0, 100), ("flights", 1, 10), ("weather", 0, 5)):
        with journal.open(tmp_path / "j", "a", topic=topic, partition=partition) as log:
            for i in range(n):
                log.append(b"%s %d %d" % (topic.encode(), partition, i), time=1000 + i,
                           key=b"k%d" % i if i % 2 else None,
                           headers=[("n", b"%d" % i)] if i % 3 == 0 else ())
    return str(tmp_path / "j")


@pytest.fixture(params=["folder", "server"])
def place(request, tmp_path, mq_context):
    """Where a stream reads the journal in tmp_path."""
    if request.param == "folder":
        yield tmp_path
        return
    with journal.serve(tmp_path, "tcp://127.0.0.1:0", context=mq_context) as server:
        yield server.urls[0]
