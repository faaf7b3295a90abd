"""How tests start Java, which Spark does some twenty times in them: with little compiling, and from
an archive of the classes that Spark loads, with which a driver is up in a third of the time.

The archive is made once for a Java and a PySpark, by the program below, in pytest's cache folder. A
Java that cannot use it goes on without.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLE = "JAVA_TOOL_OPTIONS"      # which every Java reads, whoever starts it
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# a first plan that is quick matters more here than code that is run often
PLAIN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 150.0       # seconds for the archive, which takes 20 of two idle cores


def flags(cache):
    """For JAVA_TOOL_OPTIONS. cache: the folder of archives, or None to do without. A Java that is
    killed leaves its temporary files, so they go into the folder of the run: Java itself does not
    look at TMPDIR."""
    options = f"{QUICK} -Djava.io.tmpdir={tempfile.gettempdir()}"
    archive = cache and archived(cache)
    if not archive:
        return options
    # a warning would be on standard output, which spark-class reads
    return f"{options} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable"


def home(folder):
    """For SPARK_HOME: the installed PySpark, whose Pythons import it as it is installed."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    packed = folder / "python" / "lib" / "pyspark.zip"
    packed.mkdir(parents=True)
    (packed / "pyspark").symlink_to(installed)
    for path in (installed / "python" / "lib").glob("py4j*"):
        (packed.parent / path.name).symlink_to(path)
    for path in installed.iterdir():
        if path.name != "python":
            (folder / path.name).symlink_to(path)
    return str(folder)


def archived(cache):
    """The archive's path; it is made if it is not there. None: this Java makes none, or the machine
    is so busy that it would take too long."""
    import pyspark

    java = Path(shutil.which("java")).resolve()
    parts = [java, java.stat().st_mtime_ns, pyspark.__file__, pyspark.__version__,
             os.stat(pyspark.__file__).st_mtime_ns, Path(__file__).read_text()]
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    archive = cache / f"spark-{name}.jsa"
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)        # workers of a run wait for the one that makes it
        if not archive.exists():
            for old in cache.glob("*.jsa"):     # of another Java or PySpark: 190 MB each
                old.unlink()
            _make(archive)
    return archive if archive.exists() and archive.stat().st_size else None


def _make(archive):
    """Empty if it cannot be made, so that nobody tries again."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "made.jsa"
        program = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, folder], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "ARCHIVE": f"{QUICK} -XX:ArchiveClassesAtExit={made} "
                            f"-Djava.io.tmpdir={folder}",
                 "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])})
        try:
            program.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        made.touch()
        fresh = archive.with_suffix(".new")
        shutil.copyfile(made, fresh)
        fresh.rename(archive)


def main(folder):
    """What tests do, in short: a Java that has done it has loaded nearly all that they load."""
    from mqcore.spark import session

    spark = session("local[2]", spark_driver_memory="1g", spark_ui_showConsoleProgress="false",
                    spark_driver_extraJavaOptions=os.environ["ARCHIVE"])
    where = f"{folder}/journal"
    spark.range(100).selectExpr("CAST(id AS STRING) AS value", "'t' AS topic").write.format(
        "mqcore").option("path", where).mode("append").save()
    for settings in ({}, PLAIN):
        for name, value in settings.items():
            spark.conf.set(name, value)
        rows = spark.readStream.format("mqcore").option("path", where).option(
            "subscribe", "t").option("startingOffsets", "earliest").load()
        counts = rows.withWatermark("timestamp", "1 hour").groupBy("topic", "timestamp").count()
        for number, (frame, form) in enumerate(((rows, "parquet"), (counts, "noop"))):
            frame.writeStream.format(form).option("path", f"{folder}/{form}{len(settings)}").option(
                "checkpointLocation", f"{folder}/c{number}{len(settings)}").trigger(
                availableNow=True).start().awaitTermination()
        spark.read.parquet(f"{folder}/parquet{len(settings)}").groupBy("topic").count().orderBy(
            "topic").collect()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()         # it writes the archive now


if __name__ == "__main__":
    main(*sys.argv[1:])
