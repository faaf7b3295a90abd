"""What can be told about a stream of messages: functions from DataFrames to DataFrames.

    from mqcore.spark import tables

    messages = spark.readStream.format("mqcore").option("includeStamps", "true")....load()
    tables.rates(messages, "10 seconds").writeStream.outputMode("complete")...

They take the columns of `format("mqcore")` and work on streams and on batches alike. There are two
kinds. *Counts* (`rates`, `latencies`, `sequences`, `talkers`) group and count; on a stream they are
streaming aggregates. Counts of two streams, or of the parts of one, add up: put the rows together
with `unionByName`, and `added` or what comes next gives what one count over everything would give.
So they may just as well be taken from each micro-batch and kept, as the job of
`examples/pipeline` does. *Results*
(`added`, `percentiles`, `gaps`) are made from counts, in a batch: of kept counts, or in
`foreachBatch` of a stream in complete mode, or in append mode, which hands over whole windows; in
update mode it would see the changed rows alone. They are exact, except for the three digits that
`latencies` keeps.

State: a streaming aggregate keeps a row for each of its groups, for ever, unless a watermark on
its time (`rates(messages.withWatermark("timestamp", "1 minute"))`, append or update mode) lets
Spark forget windows. What comes later than that is dropped, and Spark counts it as
`numRowsDroppedByWatermark`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import IntegralType

# Spark's DataFrame and Column have two implementations each, classic and Connect
DataFrame = Any
Column = Any

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


# -- counts ----------------------------------------------------------------------------------------


def rates(messages: DataFrame, every: str = "10 seconds", at: str = "timestamp",
          **conditions: Column) -> DataFrame:
    """Messages and bytes of values by topic and window: start, seconds, topic, messages, bytes, and
    for each condition, by its name, how many messages meet it.

    at: the column with the time: "timestamp" (arrival at the journal) or "sent". Messages without
    it are left out. State: a row for each window and topic.
    """
    more = [F.count_if(condition).alias(name) for name, condition in conditions.items()]
    windows = messages.where(F.col(at).isNotNull()).groupBy(F.window(at, every), "topic").agg(
        F.count("*").alias("messages"), F.sum(_size()).alias("bytes"), *more)
    seconds = (F.unix_micros("window.end") - F.unix_micros("window.start")) / 1e6
    return windows.select(F.col("window.start").alias("start"), seconds.alias("seconds"),
                          "topic", "messages", "bytes", *conditions)


def latencies(messages: DataFrame, every: str = "10 seconds") -> DataFrame:
    """How many messages took how long from `sent` to `timestamp`, by topic and window of arrival:
    start, topic, us, messages. For `percentiles`.

    us: microseconds to three digits (1234 is 1230), exact below a thousand; negative where the
    receiver's clock is behind the sender's. Messages without a stamp are left out. State: for each
    window and topic, a row for each such number that occurs: 900 for each power of ten at most.
    """
    took = F.unix_micros("timestamp") - F.unix_micros("sent")
    step = F.greatest(F.lit(1.0), F.pow(F.lit(10.0), F.floor(F.log10(F.abs("us"))) - 2))
    stamped = messages.where("sent IS NOT NULL").withColumn("us", took)
    rounded = (F.round(F.col("us") / step) * step).cast("long")
    return stamped.withColumn("us", rounded).groupBy(
        F.window("timestamp", every), "topic", "us").agg(F.count("*").alias("messages")).select(
        F.col("window.start").alias("start"), "topic", "us", "messages")


def sequences(messages: DataFrame) -> DataFrame:
    """Which sequence numbers were seen of each life of each producer: producer, life, block,
    messages, lowest, highest, seen. For `gaps`.

    Exact, in any order of arrival: a bit for each number, in blocks of 32,768. State: 4 KiB for
    each block that was touched, so half a byte for each message of a dense sequence at most; blocks
    are never forgotten, since a late message may still fill a gap in one. Messages without a stamp
    are left out, and so are numbers from 2**63 on.
    """
    number = F.col("sequence") + 1      # 1 to 32,768 are a block, as Spark's bitmaps have it
    return messages.where("producer IS NOT NULL AND sequence >= 0").groupBy(
        "producer", "life", F.bitmap_bucket_number(number).alias("block")).agg(
        F.count("*").alias("messages"), F.min("sequence").alias("lowest"),
        F.max("sequence").alias("highest"),
        F.bitmap_construct_agg(F.bitmap_bit_position(number)).alias("seen"))


def talkers(messages: DataFrame, *columns: str) -> DataFrame:
    """Messages and bytes of values by each of the columns, "key" say: by, name, messages, bytes,
    where `by` is the column and `name` what it held, as text; nulls are left out. The most busy:
    `.orderBy("messages", ascending=False)`. State: a row for each name."""
    pairs = F.explode(F.array(*[
        F.struct(F.lit(column).alias("by"), F.col(column).cast("string").alias("name"))
        for column in columns]))
    return messages.select(pairs.alias("it"), _size().alias("size")).where(
        "it.name IS NOT NULL").groupBy("it.by", "it.name").agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes"))


def _size() -> Column:
    """Bytes of a value; a tombstone has none."""
    return F.coalesce(F.length("value"), F.lit(0))


# -- results ---------------------------------------------------------------------------------------


def added(counts: DataFrame) -> DataFrame:
    """The sums of several counts (not of `sequences`) by the columns that are no integers."""
    sums = [field.name for field in counts.schema if isinstance(field.dataType, IntegralType)]
    keys = [name for name in counts.columns if name not in sums]
    return counts.groupBy(*keys).agg(*[F.sum(name).alias(name) for name in sums])


def percentiles(counted: DataFrame, at: dict[str, float] | None = None) -> DataFrame:
    """Of `latencies`: start, topic, n, a column for each percentile, max; all in milliseconds.

    at: {"p50": 0.5, ...}; None: PERCENTILES. Values are interpolated between neighbors, as in
    NumPy. Their error is below 0.5 %, because `latencies` keeps three digits.
    """
    at = PERCENTILES if at is None else at
    shares = F.array(*[F.lit(share) for share in at.values()])
    found = counted.groupBy("start", "topic").agg(
        F.sum("messages").alias("n"), F.percentile("us", shares, F.col("messages")).alias("p"),
        F.max("us").alias("most"))
    columns = [(F.col("p")[i] / 1000).alias(name) for i, name in enumerate(at)]
    return found.select("start", "topic", "n", *columns, (F.col("most") / 1000).alias("max"))


def gaps(seen: DataFrame) -> DataFrame:
    """Of `sequences`: producer, life, messages, missing, duplicates.

    missing: numbers up to the highest that never came, from 0 on in life 0, and in a newer life,
    which may begin with any number, from its lowest; what is lost at the very end shows only when
    something follows. duplicates: messages less different numbers.
    """
    blocks = seen.groupBy("producer", "life", "block").agg(
        F.sum("messages").alias("messages"), F.min("lowest").alias("lowest"),
        F.max("highest").alias("highest"),
        F.bitmap_count(F.bitmap_or_agg("seen")).alias("different"))
    begin = F.when(F.col("life") == 0, 0).otherwise(F.min("lowest"))
    return blocks.groupBy("producer", "life").agg(
        F.sum("messages").alias("messages"),
        (F.max("highest") + 1 - begin - F.sum("different")).alias("missing"),
        (F.sum("messages") - F.sum("different")).alias("duplicates"))
