"""Draws a Topology: as text, in DOT for Graphviz, and as SVG with a layout of its own."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from mqcore.monitor.topology import Edge, Node, NodeKey, Topology

WIDTH, ROW, TITLE, GAP, BETWEEN, MARGIN = 250, 40, 26, 24, 130, 20    # pixels
LETTERS = 36        # of a label in a box
STYLE = """
text { font: 12px sans-serif; fill: #1c1c1c }
.title { font-weight: bold }
.group { fill: #f2f4f8; stroke: #7a869a }
.socket { fill: #ffffff; stroke: #4a6fa5 }
.outside { fill: #ffffff; stroke: #999999; stroke-dasharray: 4 3 }
.edge { fill: none; stroke: #4a6fa5; stroke-width: 1.5 }
.drops { stroke: #c0392b }
.note { font-size: 11px; fill: #444444 }
"""


def clean(text: str) -> str:
    """Without control characters, which XML does not have and terminals obey."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LETTERS else f"{text[:LETTERS // 2]}…{text[-LETTERS // 2 + 1:]}"


def caption(edge: Edge) -> str:
    """What an edge says: its transport, and what went over it."""
    text = f"{edge.transport}, {edge.messages:,}"
    if not edge.one_way:
        text += f" / {edge.back:,}"
    text += " messages"
    if edge.connections > 1:
        text += f", {edge.connections} connections"
    if edge.queued:
        text += f", {edge.queued:,} queued"
    if edge.dropped:
        text += f", {edge.dropped:,} dropped"
    return clean(text)


# -- text ------------------------------------------------------------------------------------------


def as_text(graph: Topology) -> str:
    """A paragraph for each process, with a line for each connection of its sockets."""
    lines = []
    numbers = {key: f"{node.pattern} {key[1]}" if not node.outside else clean(node.label)
               for key, node in graph.nodes.items()}
    edges: dict[NodeKey, list[Edge]] = {}
    for edge in graph.edges:
        for key in {edge.first, edge.second}:
            edges.setdefault(key, []).append(edge)
    for group, nodes in sorted(graph.groups.items()):
        if all(node.outside for node in nodes):
            continue
        lines.append(clean(group))
        for node in nodes:
            lines.append(f"  {clean(numbers[node.key])}  {clean(node.label)}".rstrip())
            for edge in edges.get(node.key, ()):
                far = edge.second if edge.first == node.key else edge.first
                arrow = "---" if not edge.one_way else "-->" if edge.first == node.key else "<--"
                where = graph.nodes[far]
                of = "" if where.group == group or where.outside else f" of {clean(where.group)}"
                mark = "not monitored: " if where.outside else ""
                lines.append(f"    {arrow} {mark}{clean(numbers[far])}{of}  ({caption(edge)})")
    return "\n".join([*lines, *notes(graph)])


def notes(graph: Topology) -> list[str]:
    return [f"{graph.left_out:,} peers are not listed: there are too many"] * bool(graph.left_out)


# -- DOT -------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return '"' + clean(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def as_dot(graph: Topology) -> str:
    """For Graphviz: a cluster for each process."""
    names = {key: f"n{number}" for number, key in enumerate(graph.nodes)}
    lines = ["digraph mqcore {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];',
             '  edge [fontname="sans-serif", fontsize=10];']
    for number, (group, nodes) in enumerate(sorted(graph.groups.items())):
        lines += [f"  subgraph cluster_{number} {{", f"    label={quoted(group)};"]
        for node in nodes:
            style = ", style=dashed" if node.outside else ""
            title = node.pattern if node.outside else f"{node.pattern} {node.key[1]}"
            text = quoted(title)[:-1] + "\\n" + quoted(node.label)[1:]
            lines.append(f"    {names[node.key]} [label={text}{style}];")
        lines.append("  }")
    for edge in graph.edges:
        both = "" if edge.one_way else ", dir=both"
        color = ", color=red" if edge.dropped else ""
        lines.append(f"  {names[edge.first]} -> {names[edge.second]} "
                     f"[label={quoted(caption(edge))}{both}{color}];")
    return "\n".join([*lines, *(f"  // {line}" for line in notes(graph)), "}"])


# -- SVG -------------------------------------------------------------------------------------------


def ranks(groups: Iterable[str], pairs: set[tuple[str, str]]) -> dict[str, int]:
    """The column of each process: right of those that send to it. Circles end at a bound."""
    found = dict.fromkeys(groups, 0)
    in_order = sorted(pairs)
    for _ in range(len(found)):
        moved = False
        for first, second in in_order:
            if found[second] <= found[first] < len(found) - 1:
                found[second] = found[first] + 1
                moved = True
        if not moved:
            break
    used = {rank: index for index, rank in enumerate(sorted(set(found.values())))}
    return {group: used[rank] for group, rank in found.items()}


def columns_of(graph: Topology) -> list[list[tuple[str, list[Node]]]]:
    """The processes, with their sockets, in columns from left to right."""
    group_of = {key: node.group for key, node in graph.nodes.items()}
    pairs = {(group_of[edge.first], group_of[edge.second]) for edge in graph.edges}
    pairs = {(first, second) for first, second in pairs
             if first != second and (second, first) not in pairs}
    places = ranks(sorted(set(group_of.values())), pairs)
    columns: list[list[tuple[str, list[Node]]]] = [[] for _ in range(max(places.values(),
                                                                         default=-1) + 1)]
    for group, nodes in sorted(graph.groups.items()):
        columns[places[group]].append((group, nodes))
    return columns


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" rx="4"/>')


def words(x: float, y: float, text: str, kind: str = "", full: str = "") -> str:
    title = f"<title>{escape(clean(full))}</title>" if full else ""
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{title}{escape(clean(text))}</text>'


def as_svg(graph: Topology) -> str:
    """A picture that needs no other program: a box for each process, from senders to receivers."""
    shapes: list[str] = []
    spots: dict[NodeKey, tuple[float, float]] = {}
    height = 0.0
    columns = columns_of(graph)
    for column, groups in enumerate(columns):
        x, y = MARGIN + column * (WIDTH + BETWEEN), float(MARGIN)
        for group, nodes in groups:
            tall = TITLE + len(nodes) * ROW + 8
            shapes += [box(x, y, WIDTH, tall, "group"),
                       words(x + 10, y + 18, short(group), "title", group)]
            for index, node in enumerate(nodes):
                top = y + TITLE + index * ROW
                title = node.pattern if node.outside else f"{node.pattern} {node.key[1]}"
                shapes += [box(x + 10, top, WIDTH - 20, ROW - 6,
                               "outside" if node.outside else "socket"),
                           words(x + 18, top + 14, title),
                           words(x + 18, top + 28, short(node.label), "note", node.label)]
                spots[node.key] = (x, top + (ROW - 6) / 2)
            y += tall + GAP
        height = max(height, y)
    lines = [_curve(edge, spots) for edge in graph.edges]
    for line in notes(graph):
        shapes.append(words(MARGIN, height + 4, line))
        height += 20
    width = 2 * MARGIN + max(1, len(columns)) * (WIDTH + BETWEEN) - BETWEEN + 60
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + MARGIN:.0f}" '
        f'viewBox="0 0 {width} {height + MARGIN:.0f}" role="img">',
        "<title>Who is connected to whom</title>", f"<style>{STYLE}</style>",
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" '
        'orient="auto-start-reverse"><path d="M0,0 L9,4 L0,8 z" fill="#4a6fa5"/></marker></defs>',
        f'<rect width="{width}" height="{height + MARGIN:.0f}" fill="#ffffff"/>',
        *shapes, *lines, "</svg>"])


def _curve(edge: Edge, spots: dict[NodeKey, tuple[float, float]]) -> str:
    """A line between two sockets, which shows its caption when the pointer is over it."""
    (x1, y1), (x2, y2) = spots[edge.first], spots[edge.second]
    if x1 == x2:        # in one column: round its right side
        start, end = x1 + WIDTH - 10, x2 + WIDTH - 10
        bend = 40 + 8 * (abs(y2 - y1) // ROW % 4)
        path = f"M{start:.0f},{y1:.0f} C{start + bend:.0f},{y1:.0f} {end + bend:.0f},{y2:.0f} " \
               f"{end:.0f},{y2:.0f}"
        middle = start + bend * 0.75 + 4
    else:
        start, end = (x1 + WIDTH - 10, x2 + 10) if x1 < x2 else (x1 + 10, x2 + WIDTH - 10)
        half = (start + end) / 2
        path = f"M{start:.0f},{y1:.0f} C{half:.0f},{y1:.0f} {half:.0f},{y2:.0f} {end:.0f},{y2:.0f}"
        middle = half - 30
    tips = 'marker-end="url(#tip)"' + ('' if edge.one_way else ' marker-start="url(#tip)"')
    kind = "edge drops" if edge.dropped else "edge"
    note = words(middle, (y1 + y2) / 2 - 4, f"{edge.messages:,}", "note")
    return (f'<g><title>{escape(caption(edge))}</title><path class="{kind}" d="{path}" {tips}/>'
            f"{note}</g>")
