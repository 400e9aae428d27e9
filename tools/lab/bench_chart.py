# SPDX-License-Identifier: GPL-2.0
"""The chart of `lab bench`: for each machine a panel with the IOPS, and one with the instructions of the systems."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from .bench_report import Measured
from .bench_systems import SYSTEMS
from .bench_systems import without_rdma

COLOURS = {"ours": "#b7410e", "ours-trusting": "#e8a07c", "c": "#1f4e79",
           "c-trusting": "#7fa8cc", "nvme": "#6a8f3c", "before": "#999999",
           "iser": "#c9a227", "srp": "#7d5a3c", "nvme-tcp": "#b5cf8f", "iscsi": "#e3d08a", "raid1": "#d4536b",
           "ours-c-api": "#8e5ea2", "ours-c-api-trusting": "#c9b3d3"}
# In pixels.
BAR, GAP, NARROWEST_GROUP, NARROWEST = 12, 24, 90, 640
LEFT, RIGHT, TITLE, BARS, LABELS = 64, 12, 28, 200, 28
LEGEND_ENTRY, LEGEND_ROW, LEGEND_TOP, NOTE = 145, 18, 30, 16
# Of the lines across a panel, at most.
STEPS = 5
SIZE = 4096


def chart(found: list[Measured]) -> str:
    """An SVG with bars for the requests of 4 KiB."""
    small = [one for one in found if one.size == SIZE]
    names = [name for name in SYSTEMS if any(one.system == name for one in small)]
    jobs = sorted({(one.rw, one.depth) for one in small})
    group_width = max(BAR * len(names), NARROWEST_GROUP, (NARROWEST - LEFT - RIGHT) // max(len(jobs), 1) - GAP)
    width = max(LEFT + len(jobs) * (group_width + GAP) + RIGHT, NARROWEST)
    parts, y = _legend(names, width)
    for machine in sorted({one.machine for one in small}):
        mtu, cpus, devices = machine
        place = f"RDMA MTU {mtu}, {_many(cpus, 'CPU')}, {_many(devices, 'device')}"
        here = [one for one in small if one.machine == machine]
        for title, figure in ((f"IOPS in instruction time: {place}", _iops),
                              (f"Instructions per request of the system's own modules, both ends: {place}", _own)):
            if any(figure(one) for one in here):
                parts += [f'<g transform="translate(0,{y})">', *_panel(title, here, names, group_width, figure), "</g>"]
                y += TITLE + BARS + LABELS
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" font-family="sans-serif" '
            'font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    return "\n".join([*head, *parts, "</svg>\n"])


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _iops(one: Measured) -> float:
    return one.iops


def _own(one: Measured) -> float:
    return one.own_per_io


def _legend(names: list[str], width: int) -> tuple[list[str], int]:
    """The head of the chart, and where it ends."""
    parts = ['<text x="12" y="19" font-size="14" font-weight="bold">Random requests of 4 KiB</text>']
    in_a_row = (width - LEFT) // LEGEND_ENTRY
    for index, name in enumerate(names):
        x, y = 12 + index % in_a_row * LEGEND_ENTRY, LEGEND_TOP + index // in_a_row * LEGEND_ROW
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[name]}"/>'
                     f'<text x="{x + 14}" y="{y + 9}">{escape(name)}</text>')
    end = LEGEND_TOP + math.ceil(len(names) / in_a_row) * LEGEND_ROW
    by_tcp = [name for name in names if without_rdma(name)]
    if by_tcp:
        parts.append(f'<text x="12" y="{end + 9}" fill="#555">{escape(", ".join(by_tcp))}: TCP over the loopback '
                     'device, without the work of soft-RoCE</text>')
        end += NOTE
    return parts, end + 8


def round_step(most: float) -> float:
    """The distance of the lines across a panel: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(most / STEPS))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * STEPS >= most)


def _panel(title: str, here: list[Measured], names: list[str], group_width: int,
           figure: Callable[[Measured], float]) -> list[str]:
    """Bars of a figure in groups, one for each job."""
    step = round_step(max(map(figure, here)))
    lines = math.ceil(max(map(figure, here)) / step)
    base = TITLE + BARS
    jobs = sorted({(one.rw, one.depth) for one in here})
    right = LEFT + len(jobs) * (group_width + GAP)
    parts = [f'<text x="12" y="16" font-size="12">{escape(title)}</text>']
    for line in range(lines + 1):
        y = base - BARS * line / lines
        parts.append(f'<line x1="{LEFT - 4}" y1="{y:.0f}" x2="{right}" y2="{y:.0f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{step * line:,.0f}</text>')
    by_place = {(one.rw, one.depth, one.system): figure(one) for one in here}
    for number, (rw, depth) in enumerate(jobs):
        left = LEFT + number * (group_width + GAP) + GAP // 2
        first = left + (group_width - BAR * len(names)) // 2
        for index, name in enumerate(names):
            value = by_place.get((rw, depth, name), 0.0)
            tall = BARS * value / (step * lines)
            if value:
                parts.append(f'<rect x="{first + index * BAR}" y="{base - tall:.1f}" width="{BAR - 2}" '
                             f'height="{tall:.1f}" fill="{COLOURS[name]}"><title>{name}: {value:,.0f}</title></rect>')
        parts.append(f'<text x="{left + group_width // 2}" y="{base + 16}" text-anchor="middle">'
                     f'{rw.removeprefix("rand")}, depth {depth}</text>')
    return parts


__all__ = ("COLOURS", "chart", "round_step")
