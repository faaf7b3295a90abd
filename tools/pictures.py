"""Draws the pictures of the documentation from text: docs/pictures/NAME.txt to SVG.

    python tools/pictures.py NAME > picture.svg     to look at one

A page holds `<!-- picture: NAME -->`, which tools/docs_hooks.py replaces by the SVG itself. So the
picture takes the colors of the page, light or dark, and needs no request. A source has a line each:

    title: what the picture shows, for those who do not see it
    cell: 190 90                            width and height of a cell in px (default)
    group 0,0 2,1 TEXT                      a frame around 2 columns and 1 row from column 0, row 0
    box NAME 0,0 TEXT | SECOND LINE         a box in column 0, row 0; columns and rows may be halves
    wide NAME 0,0 2 TEXT | SECOND LINE      a box over 2 columns
    arrow NAME -> NAME TEXT                 also <-> for both directions, --> and <--> dashed
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
CELL = (190.0, 90.0)
BOX_HEIGHT, GAP, MARGIN = 50.0, 34.0, 8.0
FONT, LETTER = 15, 8.2  # px; the width of a letter, roughly, to see whether a text fits
ARROWS = {"->": (False, False), "<->": (True, False), "-->": (False, True), "<-->": (True, True)}


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    lines: list[str]

    @property
    def center(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def overlaps(self, other: Box) -> bool:
        return (self.x < other.x + other.width and other.x < self.x + self.width
                and self.y < other.y + other.height and other.y < self.y + self.height)


class Arrow(NamedTuple):
    start: str
    end: str
    both: bool
    dashed: bool
    text: str


class Picture(NamedTuple):
    name: str
    title: str
    boxes: dict[str, Box]
    groups: list[Box]
    arrows: list[Arrow]


def pair(text: str) -> tuple[float, float]:
    first, _, second = text.partition(",")
    return float(first), float(second)


def parse(text: str, name: str) -> Picture:
    """Raises ValueError with the line that cannot be read."""
    title, cell = "", CELL
    boxes: dict[str, Box] = {}
    groups: list[Box] = []
    arrows: list[Arrow] = []

    def place(at: str, columns: float, rest: str) -> Box:
        column, row = pair(at)
        return Box(MARGIN + GAP / 2 + column * cell[0], MARGIN + 20 + row * cell[1],
                   columns * cell[0] - GAP, BOX_HEIGHT, [one.strip() for one in rest.split("|")])

    for number, line in enumerate(text.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        try:
            if word == "title:":
                title = rest
            elif word == "cell:":
                width, height = rest.split()
                cell = float(width), float(height)
            elif word == "group":
                at, size, words = rest.split(" ", 2)
                (column, row), (columns, rows) = pair(at), pair(size)
                groups.append(Box(MARGIN + column * cell[0] + 3, MARGIN + row * cell[1] - 5,
                                  columns * cell[0] - 6, rows * cell[1] - 4, [words]))
            elif word == "box":
                key, at, words = rest.split(" ", 2)
                boxes[key] = place(at, 1, words)
            elif word == "wide":
                key, at, columns_, words = rest.split(" ", 3)
                boxes[key] = place(at, float(columns_), words)
            elif word == "arrow":
                start, kind, end, *words_ = rest.split(" ", 3)
                arrows.append(Arrow(boxes[start] and start, boxes[end] and end, *ARROWS[kind],
                                    " ".join(words_)))
            elif word:
                raise ValueError(f"unknown word {word!r}")
        except (KeyError, ValueError) as error:
            raise ValueError(f"{name}.txt, line {number}: {error}: {line}") from None
    return Picture(name, title, boxes, groups, arrows)


def border(box: Box, toward: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the box's center leaves the box."""
    (x, y), (tx, ty) = box.center, toward
    dx, dy = tx - x, ty - y
    scale = min(box.width / 2 / abs(dx) if dx else 9e9, box.height / 2 / abs(dy) if dy else 9e9)
    return x + dx * scale, y + dy * scale


def ends(a: Box, b: Box) -> tuple[float, float, float, float]:
    """Of the arrow: straight down or across where the boxes face each other, else slanting."""
    (ax, ay), (bx, by) = a.center, b.center
    if abs(ay - by) > 1:
        low, high = max(a.x, b.x) + 12, min(a.x + a.width, b.x + b.width) - 12
        if low <= high:  # one is below the other
            narrow = ax if a.width <= b.width else bx
            ax = bx = min(max(narrow, low), high)
            down = ay < by
            return ax, a.y + a.height * down, bx, b.y + b.height * (not down)
    return *border(a, (bx, by)), *border(b, (ax, ay))


def draw_arrow(picture: Picture, arrow: Arrow) -> str:
    x1, y1, x2, y2 = ends(picture.boxes[arrow.start], picture.boxes[arrow.end])
    head = f"url(#{picture.name}-head)"
    marks = f' marker-end="{head}"' + (f' marker-start="{head}"' if arrow.both else "")
    dash = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    line = (f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" '
            f'class="line"{dash}{marks}/>')
    if not arrow.text:
        return line
    steep, lift = abs(x1 - x2) < 1, 7 + abs(y1 - y2) / 3
    x, y = (x1 + x2) / 2 + (8 if steep else 0), (y1 + y2) / 2 + (5 if steep else -lift)
    return line + (f'<text x="{x:.0f}" y="{y:.0f}" class="label" '
                   f'text-anchor="{"start" if steep else "middle"}">{escape(arrow.text)}</text>')


def draw_box(box: Box) -> str:
    x, y = box.center
    made = [f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
            f'height="{box.height:.0f}" rx="6" class="box"/>']
    first = y + 5 - 9 * (len(box.lines) - 1)
    for index, text in enumerate(box.lines):
        kind = "name" if index == 0 else "note"
        made.append(f'<text x="{x:.0f}" y="{first + 19 * index:.0f}" class="{kind}" '
                    f'text-anchor="middle">{escape(text)}</text>')
    return "".join(made)


def draw_group(box: Box) -> str:
    return (f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
            f'height="{box.height:.0f}" rx="8" class="group"/>'
            f'<text x="{box.x + 9:.0f}" y="{box.y + 17:.0f}" class="label">'
            f"{escape(box.lines[0])}</text>")


STYLE = """
.mq-picture { max-width: 100%; height: auto; display: block; margin: 1em auto;
  font: 15px system-ui, sans-serif; color: var(--md-default-fg-color, currentColor) }
.mq-picture text { fill: currentColor }
.mq-picture .name { font-weight: 600 }
.mq-picture .note, .mq-picture .label { font-size: 13px }
.mq-picture .box { fill: var(--md-code-bg-color, none); stroke: currentColor; stroke-width: 1.2 }
.mq-picture .group { fill: none; stroke: currentColor; stroke-dasharray: 3 4; opacity: .55 }
.mq-picture .line { stroke: currentColor; stroke-width: 1.4 }
.mq-picture .label { paint-order: stroke; stroke: var(--md-default-bg-color, transparent);
  stroke-width: 4px }
"""


def svg(picture: Picture) -> str:
    """One line, so that Markdown takes it for one block of HTML."""
    shapes = [*picture.boxes.values(), *picture.groups]
    width = max(shape.x + shape.width for shape in shapes) + MARGIN
    height = max(shape.y + shape.height for shape in shapes) + MARGIN
    head = (f'<defs><marker id="{picture.name}-head" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
            '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>')
    body = "".join([*(draw_arrow(picture, arrow) for arrow in picture.arrows),
                    *map(draw_group, picture.groups),
                    *map(draw_box, picture.boxes.values())])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="mq-picture" role="img" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'aria-label="{escape(picture.title, quote=True)}">'
            f"<style>{' '.join(STYLE.split())}</style>{head}{body}</svg>")


def read(name: str) -> Picture:
    return parse((SOURCES / f"{name}.txt").read_text(), name)


def faults(picture: Picture) -> list[str]:
    """Boxes that overlap, texts that do not fit, a picture without a title."""
    found = [] if picture.title else ["no title"]
    names = list(picture.boxes)
    for index, name in enumerate(names):
        box = picture.boxes[name]
        found += [f"{name} overlaps {other}" for other in names[index + 1:]
                  if box.overlaps(picture.boxes[other])]
        found += [f"{name}: {line!r} is too wide" for line in box.lines
                  if len(line) * LETTER > box.width]
    return found


if __name__ == "__main__":
    print(svg(read(sys.argv[1])))
