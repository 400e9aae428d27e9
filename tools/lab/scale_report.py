# SPDX-License-Identifier: GPL-2.0
"""The figures of `lab scale`: points of curves, a table, and a chart with a panel for each curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .bar_panels import round_top
from .bench_chart import COLOURS

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 330, 220, 3
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 34
STEPS = 4


@dataclass(frozen=True)
class Point:
    """A figure of a system."""

    # What is measured, with its unit: the title of a panel.
    curve: str
    system: str
    # How many of what there are.
    count: int
    figure: float


def curves(points: Sequence[Point]) -> list[str]:
    """The curves, in the order in which they were measured."""
    return list(dict.fromkeys(point.curve for point in points))


def ratio(points: Sequence[Point], point: Point, other: str) -> float | None:
    """A figure over that of another system with as many."""
    wanted = (point.curve, other, point.count)
    for candidate in points:
        if (candidate.curve, candidate.system, candidate.count) == wanted and candidate.figure:
            return point.figure / candidate.figure
    return None


def table(points: Sequence[Point], first: str = "ours", other: str = "c") -> str:
    """A table in Markdown for each curve: a row for each count, a column for each system."""
    lines = []
    for curve in curves(points):
        here = [point for point in points if point.curve == curve]
        systems = list(dict.fromkeys(point.system for point in here))
        by_place = {(point.system, point.count): point for point in here}
        lines += ["", f"| {curve} | " + " | ".join(systems) + f" | {first} over {other} |",
                  "|---" * (len(systems) + 2) + "|"]
        for count in sorted({point.count for point in here}):
            cells = [f"{by_place[system, count].figure:,.2f}" if (system, count) in by_place else ""
                     for system in systems]
            ours = by_place.get((first, count))
            over = ratio(here, ours, other) if ours else None
            lines.append(f"| {count:,} | " + " | ".join(cells) + f" | {over:.2f} |" if over else
                         f"| {count:,} | " + " | ".join(cells) + " | |")
    return "\n".join(lines) + "\n"


def chart(points: Sequence[Point]) -> str:
    """An SVG with a panel for each curve; the counts are on a logarithmic scale."""
    names = curves(points)
    rows = max(math.ceil(len(names) / COLUMNS), 1)
    width, height = COLUMNS * PANEL_WIDTH, rows * PANEL_HEIGHT + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             'font-size="10">', '<rect width="100%" height="100%" fill="white"/>']
    for index, system in enumerate(dict.fromkeys(point.system for point in points)):
        x = 16 + index * 110
        parts.append(f'<rect x="{x}" y="9" width="10" height="10" fill="{COLOURS[system]}"/>'
                     f'<text x="{x + 14}" y="18" font-size="12">{escape(system)}</text>')
    for number, name in enumerate(names):
        x, y = number % COLUMNS * PANEL_WIDTH, 30 + number // COLUMNS * PANEL_HEIGHT
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _panel(name, [point for point in points if point.curve == name])
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, points: Sequence[Point]) -> list[str]:
    counts = sorted({point.count for point in points})
    low, high = math.log(counts[0]), math.log(counts[-1])
    top = round_top(max(point.figure for point in points))
    wide, tall = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM

    def across(count: int) -> float:
        return LEFT + wide * ((math.log(count) - low) / (high - low) if high > low else 0.5)

    def down(figure: float) -> float:
        return TOP + tall * (1 - figure / top)

    parts = [f'<text x="{LEFT}" y="{TOP - 12}" font-size="12">{escape(name)}</text>']
    for step in range(STEPS + 1):
        figure = top * step / STEPS
        parts.append(f'<line x1="{LEFT}" y1="{down(figure):.1f}" x2="{LEFT + wide}" y2="{down(figure):.1f}" '
                     'stroke="#ddd"/>'
                     f'<text x="{LEFT - 5}" y="{down(figure) + 3:.1f}" text-anchor="end">{figure:,.6g}</text>')
    parts += [f'<text x="{across(count):.1f}" y="{TOP + tall + 15}" text-anchor="middle">{count:,}</text>'
              for count in counts]
    for system in dict.fromkeys(point.system for point in points):
        own = sorted((point for point in points if point.system == system), key=lambda point: point.count)
        line = " ".join(f"{across(point.count):.1f},{down(point.figure):.1f}" for point in own)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[system]}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(point.count):.1f}" cy="{down(point.figure):.1f}" r="3" '
                  f'fill="{COLOURS[system]}">'
                  f'<title>{escape(system)}: {point.count:,}: {point.figure:,.6g}</title></circle>' for point in own]
    return parts
