"""Tables of a results file of brokers.py, for its report and for the page of the documentation."""

from __future__ import annotations

import textwrap
from typing import Any

import report

from systems import GROUPS

COLUMNS = 100           # of a line of prose
Rows = dict[str, list[dict[str, Any]]]


def titled(tables: dict[str, str]) -> str:
    """A table a group, each below what its messages survive."""
    return "\n\n".join(f"**{GROUPS[group][:1].upper()}{GROUPS[group][1:]}**\n\n{table}"
                       for group, table in tables.items() if table)


def of(results: Rows, kind: str, what: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of one kind, by group."""
    return {group: [row for row in results[kind] if row["what"] == f"{what}, {group}"]
            for group in GROUPS}


def table(heads: list[str], lines: list[list[str]]) -> str:
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1),
                      *(f"| {' | '.join(line)} |" for line in lines)])


def cell(more: dict[str, float], key: str) -> str:
    return report.amount(more[key]) if key in more else ""


def order(row: dict[str, Any]) -> list[str]:
    """Systems, the best first, those that failed last."""
    return sorted(row["summary"], key=lambda name: -row["summary"][name].get("median", -1.0))


def rates(about: dict[str, Any], results: Rows) -> str:
    """Messages a second: received, taken by the producer's client, confirmed."""
    sent = of(results, "rates", "sent")
    found = {}
    for group, several in of(results, "rates", "rate").items():
        lines = []
        for row, other in zip(several, sent[group], strict=True):
            for name in order(row):
                s = row["summary"][name]
                if "error" in s:
                    lines.append([name, f"failed: {s['error']}", "", "", "", ""])
                    continue
                mark = f" ({s['mark']})" if s["mark"] else ""
                taken = other["summary"][name]
                lines.append([
                    f"{name}{mark}", report.amount(s["median"]),
                    f"{report.amount(s['low'])} to {report.amount(s['high'])}",
                    report.amount(taken["median"]), cell(s["more"], "confirmed"),
                    cell(s["more"], "end to end")])
        found[group] = table(["messages/s", "received", "lowest to highest", "sent", "confirmed",
                              "end to end"], lines)
    return f"{about['messages']:,} messages of {about['size']} B.\n\n{titled(found)}"


def costs(about: dict[str, Any], results: Rows) -> str:
    """CPU a message, and memory."""
    found = {}
    for group, several in of(results, "rates", "rate").items():
        who = ("producer", "consumer") if group == "no broker" else \
            ("broker", "producer", "consumer")
        lines = [[name, *(cell(row["summary"][name]["more"], f"{what}, {one}")
                          for what in ("CPU us", "MiB") for one in who)]
                 for row in several for name in order(row) if "more" in row["summary"][name]]
        heads = [f"{what}, {one}" for what in ("CPU us a message", "MiB") for one in who]
        found[group] = table(["system", *heads], lines)
    return titled(found)


def figure(s: dict[str, Any] | None, second: str, scale: float) -> str:
    if s is None:
        return ""
    if "error" in s or s["mark"].startswith("not carried"):
        return "not carried" if "not carried" in s.get("error", "not carried") else "failed"
    return f"{report.amount(s['more'][second])} / {report.amount(s['median'] * scale)}"


def grid(results: Rows, kind: str, what: str, head: str, second: str, first: str) -> str:
    """A line a system, a column a load or a burst."""
    found = {}
    for group, several in of(results, kind, what).items():
        names = list(dict.fromkeys(name for row in several for name in row["summary"]))
        lines = [[name, *(figure(row["summary"].get(name), second, 1.0) for row in several)]
                 for name in names]
        found[group] = table([first, *(head.format(int(row["at"])) for row in several)], lines)
    return titled(found)


def loads(about: dict[str, Any], results: Rows) -> str:
    return grid(results, "loads", "load", "{:,}/s", "p50 us", "median / 99 %, us")


def bursts(about: dict[str, Any], results: Rows) -> str:
    return grid(results, "bursts", "burst", "{:,}", "p50", "median / last, ms")


def systems(about: dict[str, Any], results: Rows) -> str:
    """What each promises, and how it is driven."""
    found = {}
    for group in GROUPS:
        lines = [f"| {name} | {one['durability']} | {one['path']} | {one['versions']} |"
                 for name, one in about["systems"].items() if one["group"] == group]
        if lines:
            heads = "| system | what a message survives | how it is driven | versions |"
            found[group] = "\n".join([heads, "|---|---|---|---|", *lines])
    absent = "\n".join(textwrap.fill(f"- {name}: {why}.", COLUMNS, subsequent_indent="  ")
                       for name, why in about["absent"].items())
    return f"{titled(found)}\n\nNot measured:\n\n{absent}"


def every(about: dict[str, Any], results: Rows) -> str:
    parts = {"Rates": rates, "CPU and memory": costs, "Delay at an offered load": loads,
             "Delay in a burst": bursts, "What was measured": systems}
    return "\n\n".join(f"## {title}\n\n{make(about, results)}" for title, make in parts.items())
