"""The application's own tables: flights and weather from messages, and both joined by the hour.
What holds for any stream is in `mqcore.spark.tables`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

# Spark's DataFrame has two implementations, classic and Connect
DataFrame = Any

FLIGHT = ("origin string, carrier string, flight long, tailnum string, dest string, "
          "hour timestamp, dep_delay double, arr_delay double, distance double, air_time double, "
          "end boolean")
WEATHER = ("origin string, hour timestamp, temp double, wind_speed double, precip double, "
           "visib double, end boolean")
# the hour of the messages that producers send last; everything before it is data
END = "2014-06-01T00:00:00Z"


def decoded(messages: DataFrame, schema: str) -> DataFrame:
    """The messages, with the columns of this schema read from their values, which are JSON; nulls
    where a value is none, or lacks them."""
    read = messages.withColumn("it", F.from_json(F.col("value").cast("string"), schema))
    return read.select(*messages.columns, "it.*")


def flights(messages: DataFrame) -> DataFrame:
    """Flights (columns of FLIGHT) from the values of messages; what has no origin and hour is left
    out."""
    return _rows(messages, FLIGHT)


def weather(messages: DataFrame) -> DataFrame:
    """Observations (columns of WEATHER), likewise."""
    return _rows(messages, WEATHER)


def _rows(messages: DataFrame, schema: str) -> DataFrame:
    return decoded(messages.select("value"), schema).drop("value").where(
        "origin IS NOT NULL AND hour IS NOT NULL")


def hourly(flights: DataFrame, weather: DataFrame, late: str = "1 day") -> DataFrame:
    """Flights by origin and scheduled hour, with the weather there: origin, hour, flights,
    cancelled, dep_delay, arr_delay (means in minutes), temp, wind_speed, precip, visib (means of
    the hour's observations, null if there is none).

    Both sides are windowed, then joined. On streams the mode is append: an hour comes once, when
    both have passed it by `late`. State: a row for each hour and origin within `late`. What comes
    later is dropped and counted by Spark (`numRowsDroppedByWatermark`: rows as they reach the
    state, where those of one hour may have become one). The messages at END let everything pass
    and are left out.
    """
    hours = F.window("hour", "1 hour")
    flown = flights.withWatermark("hour", late).groupBy(hours, "origin").agg(
        F.count("*").alias("flights"), F.count_if(F.isnull("dep_delay")).alias("cancelled"),
        F.avg("dep_delay").alias("dep_delay"), F.avg("arr_delay").alias("arr_delay"))
    seen = weather.withWatermark("hour", late).groupBy(hours, "origin").agg(
        *[F.avg(name).alias(name) for name in ("temp", "wind_speed", "precip", "visib")])
    both = flown.join(seen, ["window", "origin"], "leftOuter")
    # a condition on the watermark's own column, which Spark leaves behind the watermark: the
    # messages at END must reach it
    return both.where(F.col("window.start") < F.lit(END).cast("timestamp")).select(
        "origin", F.col("window.start").alias("hour"), "flights", "cancelled", "dep_delay",
        "arr_delay", "temp", "wind_speed", "precip", "visib")
