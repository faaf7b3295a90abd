"""10,000 topics of four partitions with 1,024 descriptors, the whole way."""

import pytest
from programs import run

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

PROGRAM = """
import resource, sys, time
import mqcore as mq
from mqcore import journal
from mqcore.spark import session

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
N, where, copy, server_url = 10_000, sys.argv[1], sys.argv[2], sys.argv[3]
with journal.open(where, "a", topic_from="first-part", partitions=4, max_topics=N,
                  fsync="never") as writers, \\
        mq.Pull(bind="inproc://t") as pull, mq.Push(connect="inproc://t") as push, \\
        mq.device(pull, writers) as device:
    for i in range(N):
        push.send_parts([b"topic%d" % i, b"%d" % i])
    push.close(linger=3000)
    while device.running and device.stats().messages < N:
        time.sleep(0.1)
    assert device.stats().refused == 0 and device.error is None
rows = journal.list_partitions(where)
assert len(rows) == 4 * N, len(rows)

names = sorted({row.topic for row in rows})
some = [(name, partition) for name in names[::10] for partition in range(4)]
held = []
with journal.serve(where, server_url) as server:
    for topic, partition in some:
        with journal.open(server_url, topic=topic, partition=partition) as reader:
            held += [(topic, partition)] * sum(map(len, reader.batches()))
    assert [topic for topic, _ in held] == names[::10]      # each in one of the four
    for topic, partition in held[::10]:
        with journal.open(server_url, topic=topic, partition=partition) as reader, \\
                journal.open(copy, "a", topic=topic, partition=partition) as writer, \\
                mq.device(reader, writer) as device:
            while writer.next < 1:
                time.sleep(0.001)

spark = session("local[2]", spark_ui_showConsoleProgress="false", spark_driver_memory="2g")
read = dict(path=where, subscribePattern=".*", maxPartitions="64")
values = spark.read.format("mqcore").options(**read).load().select("value")
assert values.distinct().count() == values.count() == N
query = (spark.readStream.format("mqcore").options(**read, startingOffsets="earliest").load()
         .writeStream.format("memory").queryName("seen")
         .option("checkpointLocation", copy + "-checkpoint").trigger(availableNow=True).start())
query.awaitTermination()
assert spark.table("seen").count() == N
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_written_listed_served_mirrored_and_read_by_spark(tmp_path, quick_java):
    status, out, err = run("-c", PROGRAM, tmp_path / "j", tmp_path / "copy",
                           f"ipc://{tmp_path}/s", patience=2300)
    assert status == 0, err
