# SPDX-License-Identifier: GPL-2.0
"""Charts of bars: a panel for each figure, in each a group of bars for each operation, and a bar for each system."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 330, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 30, 26
HEAD = 34
STEPS = 4
# The part of a group's width that its bars take.
FILLED = 0.8


@dataclass(frozen=True)
class Panel:
    """One figure, of all systems."""

    title: str
    groups: tuple[str, ...]
    # For each system, by group: the parts of the bar, from below.
    bars: Mapping[str, Sequence[Sequence[float]]]


def round_top(figure: float) -> float:
    """The least round number that is not less than `figure`."""
    if figure <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(figure))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= figure * 0.999)


def chart(title: str, legend: Mapping[str, str], panels: Sequence[Panel], colours: Mapping[str, Sequence[str]],
          columns: int) -> str:
    """An SVG. `legend` has the colour of each name in the legend, `colours` the colours of each system's parts."""
    rows = math.ceil(len(panels) / columns)
    width, height = columns * WIDTH, HEAD + rows * HEIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             'font-size="10">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="12" y="14" font-size="13" font-weight="bold">{escape(title)}</text>']
    x = 12
    for name, colour in legend.items():
        parts.append(f'<rect x="{x}" y="21" width="9" height="9" fill="{colour}"/>'
                     f'<text x="{x + 13}" y="29" font-size="11">{escape(name)}</text>')
        x += 26 + 6 * len(name)
    for number, panel in enumerate(panels):
        x, y = number % columns * WIDTH, HEAD + number // columns * HEIGHT
        parts += [f'<g transform="translate({x},{y})">', *_panel(panel, colours), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, colours: Mapping[str, Sequence[str]]) -> list[str]:
    top = round_top(max(sum(bar) for bars in panel.bars.values() for bar in bars))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [f'<text x="{LEFT}" y="{TOP - 10}" font-size="11">{escape(panel.title)}</text>']
    for step in range(STEPS + 1):
        y = TOP + tall * (1 - step / STEPS)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + wide}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{top * step / STEPS:,.6g}</text>')
    group_wide = wide / len(panel.groups)
    bar_wide = group_wide * FILLED / len(panel.bars)
    for place, group in enumerate(panel.groups):
        middle = LEFT + group_wide * (place + 0.5)
        parts.append(f'<text x="{middle:.1f}" y="{TOP + tall + 14}" text-anchor="middle">{escape(group)}</text>')
        for number, (system, bars) in enumerate(panel.bars.items()):
            x = middle - group_wide * FILLED / 2 + number * bar_wide
            parts += _bar(bars[place], x, bar_wide - 1, top, colours[system], f"{system}, {group}")
    return parts


def _bar(bar: Sequence[float], x: float, wide: float, top: float, colours: Sequence[str], name: str) -> list[str]:
    tall, parts, below = HEIGHT - TOP - BOTTOM, [], 0.0
    for part, colour in zip(bar, colours, strict=True):
        high = tall * part / top
        y = TOP + tall - tall * below / top - high
        below += part
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}">'
                     f'<title>{escape(name)}: {part:,.6g}</title></rect>')
    return parts
