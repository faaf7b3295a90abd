"""One trace over all processes: its spans as a tree, in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mqcore.monitor.protocol import Process, SpanFacts, Spans

DEEPEST = 64        # levels of indentation; parents are what programs say they are


@dataclass
class Node:
    """A span with those that it has caused."""

    process: Process
    facts: SpanFacts
    children: list[Node] = field(default_factory=list)


def tree(answers: Iterable[Spans]) -> list[Node]:
    """The spans whose parents are not known, with their children, each in the order of time. A span
    that several answers have is listed once."""
    nodes: dict[str, Node] = {}
    for answer in answers:
        for facts in answer.spans:
            nodes.setdefault(facts.span, Node(answer.process, facts))
    in_order = sorted(nodes.values(), key=lambda node: node.facts.start)
    roots: list[Node] = []
    for node in in_order:
        parent = nodes.get(node.facts.parent)
        (roots if parent is None else parent.children).append(node)
    seen = {id(node) for _, node in walk(roots)}
    for node in in_order:
        if id(node) not in seen:        # its ancestors are a circle, which programs have invented
            nodes[node.facts.parent].children.remove(node)
            roots.append(node)
            seen.update(id(below) for _, below in walk([node]))
    return roots


def walk(roots: Iterable[Node]) -> Iterator[tuple[int, Node]]:
    """Each span with its depth, parents first."""
    left = [(0, node) for node in reversed(list(roots))]
    while left:
        depth, node = left.pop()
        yield depth, node
        left += [(depth + 1, child) for child in reversed(node.children)]


def as_rows(roots: list[Node]) -> list[tuple[str, str, str, str]]:
    """Start and duration in milliseconds, process, and name of each span, for people."""
    begin = min((node.facts.start for node in roots), default=0.0)
    return [(f"{(node.facts.start - begin) * 1e3:+.3f}", f"{node.facts.duration * 1e3:.3f}",
             f"{node.process.program} {node.process.pid}",
             "  " * min(depth, DEEPEST) + f"{node.facts.name} ({node.facts.kind})"
             + (f" failed: {node.facts.error}" if node.facts.error else ""))
            for depth, node in walk(roots)]


def as_objects(roots: list[Node]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [{"span": node.facts.span, "parent": node.facts.parent, "name": node.facts.name,
             "kind": node.facts.kind, "start": node.facts.start, "duration": node.facts.duration,
             "error": node.facts.error, "depth": depth, "program": node.process.program,
             "pid": node.process.pid, "host": node.process.host}
            for depth, node in walk(roots)]
