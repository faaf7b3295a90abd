"""The same results by plain pandas, from the files that were replayed, and what differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from examples.pipeline import feed

KEYS = ["origin", "hour"]
COUNTS = ["flights", "cancelled"]
MEANS = ["dep_delay", "arr_delay", "temp", "wind_speed", "precip", "visib"]
CLOSE = 1e-9        # relative: the sums of doubles depend on their order
SHOWN = 20


@dataclass
class Comparison:
    """rows: hours that were compared. differences: what is wrong, a line each."""

    rows: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Something was compared, and nothing differs."""
        return self.rows > 0 and not self.differences

    def __str__(self) -> str:
        if self.ok:
            return f"{self.rows} hours are as pandas has them"
        more = len(self.differences) - SHOWN
        lines = [*self.differences[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return f"{self.rows} hours compared, {len(self.differences)} differences" + "".join(
            f"\n  - {line}" for line in lines)


def read_flights() -> pd.DataFrame:
    return pd.read_csv(feed.located("flights.csv.zip"))


def read_weather() -> pd.DataFrame:
    return pd.read_csv(feed.located("weather.csv"))


def hourly(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """What `hours.hourly` gives, from the files' rows."""
    def keyed(rows: pd.DataFrame) -> Any:
        hours = pd.to_datetime(rows["time_hour"], utc=True)
        return rows.assign(hour=hours.dt.floor("h")).groupby(KEYS)
    flown, seen = keyed(flights), keyed(weather)
    table = flown[["dep_delay", "arr_delay"]].mean()
    table["flights"] = flown.size()
    table["cancelled"] = flown.size() - flown["dep_delay"].count()
    return table.join(seen[MEANS[2:]].mean()).reset_index()[[*KEYS, *COUNTS, *MEANS]]


def read_table(spark: Any, folder: Path) -> pd.DataFrame:
    """A table of results as pandas: by this Spark, or from the files here if it is None."""
    if spark is None:
        table = pd.read_parquet(folder)
    else:       # as Arrow, since Spark's own way to pandas drops the zone of times
        table = spark.read.parquet(str(folder)).toArrow().to_pandas()
    for name in table.columns:
        if isinstance(table[name].dtype, pd.DatetimeTZDtype):
            table[name] = table[name].dt.tz_convert("UTC")
    return table


def compare(spark: Any, results: Path, flights: pd.DataFrame | None = None,
            weather: pd.DataFrame | None = None) -> Comparison:
    """The job's results against pandas over what was replayed; None: the whole files.

    Counts must be equal, means within 1e-9, every hour there once. So must the messages of
    each topic, without those at the end, and none of them unreadable. spark: reads the results;
    None: pandas does, from a folder of this machine.
    """
    flights = read_flights() if flights is None else flights
    weather = read_weather() if weather is None else weather
    wanted, found = hourly(flights, weather), read_table(spark, results / "hourly")
    wrong = [f"{row.origin} {row.hour} is there twice"
             for row in found[found.duplicated(KEYS)].itertuples()]
    both = wanted.merge(found.drop_duplicates(KEYS), on=KEYS, how="outer",
                        suffixes=("", "_found"), indicator="where")
    for row in both[both["where"] != "both"].itertuples():
        what = "is missing" if row.where == "left_only" else "is not in the files"
        wrong.append(f"{row.origin} {row.hour} {what}")
    wrong += _unequal(both[both["where"] == "both"])
    wrong += _totals(read_table(spark, results / "topics"), len(flights), len(weather))
    return Comparison(len(wanted), wrong)


def _unequal(rows: pd.DataFrame) -> list[str]:
    wrong = []
    for name in [*COUNTS, *MEANS]:
        want, got = rows[name], rows[f"{name}_found"]
        near = CLOSE * want.abs() if name in MEANS else 0
        same = ((want - got).abs() <= near) | (want.isna() & got.isna())
        wrong += [f"{row['origin']} {row['hour']}: {name} is {row[f'{name}_found']}, "
                  f"not {row[name]}" for _, row in rows[~same].iterrows()]
    return wrong


def _totals(topics: pd.DataFrame, flights: int, weather: int) -> list[str]:
    wrong = []
    rows = topics.set_index("topic")
    for topic, sent in (("flights", flights), ("weather", weather)):
        if topic not in rows.index:
            wrong.append(f"there are no messages of the topic {topic}, {sent} expected")
            continue
        row = rows.loc[topic]
        if row["messages"] - row["ends"] != sent:
            wrong.append(f"{topic}: {row['messages'] - row['ends']} messages, not {sent}")
        if row["unreadable"]:
            wrong.append(f"{topic}: {row['unreadable']} messages are unreadable")
    return wrong


