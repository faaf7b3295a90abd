"""The report: one HTML page with its plots inside, from what a run left in its folder.

Read are the results (Parquet), the producers' own accounts, and run.json, which says how the run
was made and what was compared. Nothing is measured here, so the page can be written again.
"""

from __future__ import annotations

import html
import importlib.util
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.errors import NotSupported

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE = "report.html"
WIDE, HIGH = 8.4, 3.0           # inches of a plot
TOP = 10                        # talkers of each kind
COLOURS = ("#2a6fb0", "#c0504d", "#5b8c5a", "#d08a2e")
STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; margin: .6em 0 }
svg { max-width: 100%; height: auto }
th, td { padding: .15em .9em .15em 0; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } th { font-weight: 600; color: #555 }
.good { color: #2d6a2d } .bad { color: #a02020; font-weight: 600 } p.note { color: #555 }
.side { display: flex; flex-wrap: wrap; gap: 0 3em }
"""


def need_matplotlib() -> None:
    """NotSupported without it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise NotSupported("the report page needs the package matplotlib",
                           hint="pip install matplotlib")


@dataclass
class Run:
    """What a run left in its folder."""

    about: dict[str, Any]               # run.json
    accounts: list[dict[str, Any]]      # of the producers
    tables: dict[str, pd.DataFrame]     # of the results, by name

    @classmethod
    def read(cls, folder: Path) -> Run:
        import pandas as pd

        from examples.pipeline import truth

        about = json.loads((folder / "run.json").read_text())
        tables = {}
        for name in ("rates", "latency", "sequences", "talkers"):
            table = truth.read_table(None, folder / "results" / name)
            if "start" in table:        # windows: those of the feed, in seconds since the epoch
                began = pd.to_datetime(table["start"], utc=True)
                table["start"] = (began - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
                table = table[table["start"] < about["fed"]].sort_values("start")
            tables[name] = table
        return cls(about, [json.loads(path.read_text())
                    for path in sorted((folder / "producers").glob("*.json"))], tables)

    @property
    def started(self) -> float:
        return float(self.about["started"])

    def sent(self) -> dict[int, dict[int, int]]:
        """By producer: messages of the feed sent in each second since the epoch."""
        return {account["producer"]: {int(at): n for at, (n, _) in account["seconds"].items()
                                      if int(at) < self.about["fed"]}
                for account in self.accounts}

    def load(self) -> pd.DataFrame:
        """By window of arrival: the rate of all topics together, and the latencies of each."""
        rates = self.tables["rates"].groupby("start").agg({"messages": "sum", "seconds": "first"})
        load = (rates["messages"] / rates["seconds"]).rename("load")
        return self.tables["latency"].join(load, on="start", how="inner")


# -- plots ---------------------------------------------------------------------------------------

def plots(title: str, across: str, up: str, sharey: bool = True) -> tuple[Figure, list[Axes]]:
    """A row of two."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDE, HIGH), layout="constrained")
    every = list(figure.subplots(1, 2, sharey=sharey))
    for axes in every:
        axes.set_xlabel(across)
        axes.locator_params(axis="x", nbins=6)
        axes.grid(True, color="#e4e4e4", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    every[0].set_ylabel(up)
    figure.suptitle(title, fontsize=11)
    return figure, every


def svg(figure: Figure, name: str) -> str:
    """The figure as inline SVG, without a file's header; the name makes its ids unique."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg"):]
    return re.sub(r'(id="|url\(#|href="#)', rf"\1{name}-", drawn)


def latency_over_time(run: Run) -> str:
    figure, every = plots("Latency against time", "s after the start", "ms")
    for axes, (topic, table) in zip(every, run.tables["latency"].groupby("topic"), strict=False):
        for name, colour in zip(("p50", "p90", "p99", "max"), COLOURS, strict=True):
            axes.plot(table["start"] - run.started, table[name], label=name, color=colour,
                      linewidth=1.3, marker=".", markersize=3)
        axes.set_yscale("log")
        axes.set_title(topic, fontsize=10)
        mark_steps(axes, run)
    every[0].legend(fontsize=8, frameon=False, ncols=4)
    return svg(figure, "time")


def latency_over_load(run: Run) -> str:
    load = run.load()
    figure, every = plots("Latency against load, a point a window of arrival",
                          "messages/s, all topics", "ms")
    for axes, (topic, table) in zip(every, load.groupby("topic"), strict=False):
        for name, colour in zip(("p50", "p99"), COLOURS, strict=False):
            axes.scatter(table["load"], table[name], label=name, color=colour, s=12)
        axes.set_yscale("log")
        axes.set_title(topic, fontsize=10)
    every[0].legend(fontsize=8, frameon=False)
    return svg(figure, "load")


def throughput(run: Run) -> str:
    figure, every = plots("Throughput", "s after the start", "messages/s", sharey=False)
    for colour, (producer, counts) in zip(COLOURS, sorted(run.sent().items()), strict=False):
        times = range(min(counts), max(counts) + 1) if counts else range(0)
        every[0].step([at - run.started for at in times], [counts.get(at, 0) for at in times],
                      where="post", label=f"producer {producer}", color=colour, linewidth=1.3)
    for colour, (topic, table) in zip(COLOURS, run.tables["rates"].groupby("topic"), strict=False):
        every[1].step(table["start"] - run.started, table["messages"] / table["seconds"],
                      where="post", label=topic, color=colour, linewidth=1.3)
    for axes, title in zip(every, ("sent", "arrived in the journals"), strict=True):
        axes.set_title(title, fontsize=10)
        axes.legend(fontsize=8, frameon=False)
        mark_steps(axes, run)
    return svg(figure, "rate")


def mark_steps(axes: Axes, run: Run) -> None:
    """Where the pace changed."""
    for at, _ in run.about["steps"][1:]:
        axes.axvline(at, color="#999", linewidth=0.8, linestyle=":")


# -- the page ------------------------------------------------------------------------------------

def text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    number = isinstance(value, int) and not isinstance(value, bool)
    return html.escape(f"{value:,}" if number else str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>\n"
                   for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}</table>\n"


def sums(run: Run) -> str:
    """Every sum that was compared; a wrong one is marked."""
    rows = "".join(
        f'<tr><td>{html.escape(what)}</td><td>{text(got)}</td><td>{text(want)}</td>'
        f'<td class="{"good" if got == want else "bad"}">{"=" if got == want else "differs"}</td>'
        "</tr>\n" for what, got, want in run.about["sums"])
    return f"<table>\n<tr><th>messages</th><th>found</th><th>expected</th><th></th></tr>\n{rows}" \
           "</table>\n"


def sequences(run: Run) -> str:
    found = {int(row.producer): row for row in run.tables["sequences"].itertuples()}
    rows = []
    for account in run.accounts:
        seen = found.get(account["producer"])
        rows.append((f"{account['producer']}", account["messages"], account["dropped"],
                     account["undelivered"],
                     *((int(seen.messages), int(seen.missing), int(seen.duplicates))
                       if seen is not None else ("none", "", ""))))
    return table(("producer", "sent", "cut in two", "undelivered", "read by Spark", "missing",
                  "duplicates"), rows)


def by_step(run: Run) -> str:
    """Latencies of all topics at each pace, over the windows of each step."""
    edges = [at for at, _ in run.about["steps"]] + [float("inf")]
    load = run.load()
    rows = []
    for (at, share), until in zip(run.about["steps"], edges[1:], strict=True):
        here = load[(load["start"] - run.started >= at) & (load["start"] - run.started < until)]
        if len(here):
            rows.append((f"{share:.0%}", round(here["load"].median()), float(here["p50"].median()),
                         float(here["p99"].median()), float(here["max"].max())))
    return table(("pace", "messages/s (median)", "p50 ms (median)", "p99 ms (median)",
                  "longest ms"), rows)


def top_talkers(run: Run) -> Iterator[str]:
    for by, found in run.tables["talkers"].groupby("by"):
        top = found.sort_values("messages", ascending=False).head(TOP)
        yield f"<div><h3>{html.escape(str(by))}</h3>" + table(
            ("name", "messages", "bytes"),
            [(row.name, int(row.messages), int(row.bytes)) for row in top.itertuples(index=False)]
        ) + "</div>"


def batches(run: Run) -> str:
    return table(("query", "batch", "rows", "seconds", "rows of state", "watermark"), [
        (batch["query"], batch["batch"], batch["rows"], batch["seconds"], batch["state_rows"],
         batch["watermark"] or "-") for batch in run.about["progress"]])


def page(run: Run) -> str:
    problems = run.about["problems"]
    verdict = '<p class="good">Everything sent was stored, read once and computed as pandas ' \
              "computes it.</p>" if not problems else "".join(
                  f'<p class="bad">{html.escape(problem)}</p>' for problem in problems)
    settings = table(("setting", ""), run.about["settings"].items())
    parts = [
        verdict, settings, "<h2>Sums</h2>", sums(run),
        "<h2>Latency</h2>",
        '<p class="note">From the producer\'s stamp to the journal\'s time of arrival. Dotted: the '
        "pace changes.</p>", latency_over_time(run), latency_over_load(run), by_step(run),
        "<h2>Throughput</h2>",
        '<p class="note">Left as the producers counted it, right as Spark did.</p>',
        throughput(run), "<h2>Sequences</h2>", sequences(run), "<h2>Top talkers</h2>",
        '<div class="side">', *top_talkers(run), "</div>",
        "<h2>Compared with pandas</h2>",
        f"<p>{html.escape(run.about['comparison'])}</p>", "<h2>Micro-batches</h2>", batches(run)]
    return ("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"
            f"<title>mqcore: the pipeline</title>\n<style>{STYLE}</style></head>\n<body>\n"
            "<h1>The pipeline</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n")


def write(folder: Path) -> Path:
    """The page of a run, DIR/report.html. NotSupported without matplotlib."""
    need_matplotlib()
    out = folder / PAGE
    out.write_text(page(Run.read(folder)))
    return out
