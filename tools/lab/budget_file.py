# SPDX-License-Identifier: GPL-2.0
"""What a request may cost: the figures of budget.toml, and their comparison with what was measured.

All figures are counts per request that do not depend on time. Each is an array with a figure for each operation, in the
order of `operations`. The counts are held to; the figures of functions say which function has grown when a count has.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

FILE = Path("tools/lab/budget.toml")
# A count may be so many times what the file says: a part of it, and what one request in some hundred may take more.
TOLERANCE = 1.03
SLACK = 0.03
# How the names of operations end that have one request at a time.
ALONE = ", depth 1"
# So many functions are named when a count has grown.
NAMED = 5
PACKETS, MESSAGES, OWN, LOCKED, WAKE_UPS = "packets", "messages", "own instructions", "locked instructions", "wake-ups"
COUNTS = (MESSAGES, PACKETS, OWN, LOCKED, WAKE_UPS)
# What functions take, by the name that the file has for it; and which of these explains a count.
INSTRUCTIONS, LOCKS, CALLS = "instructions of functions", "locked instructions of functions", "calls of functions"
OF_FUNCTIONS = (INSTRUCTIONS, LOCKS, CALLS)
EXPLAINS = {PACKETS: CALLS, MESSAGES: CALLS, OWN: INSTRUCTIONS, LOCKED: LOCKS, WAKE_UPS: CALLS}
# Smaller figures of functions are left out: they are chance.
LEAST = {INSTRUCTIONS: 0.5, LOCKS: 0.05, CALLS: 0.05}
DIGITS = {INSTRUCTIONS: 1, OWN: 1}
HEAD = """\
# SPDX-License-Identifier: GPL-2.0
#
# What a request may cost, both ends together, each figure for each of the operations; see "Budgets" in
# Documentation/benchmarks.md. `make test` fails when one of the counts is exceeded by more than 3 %. The figures of
# functions say which of them has grown then. `PYTHONPATH=tools python3 -m lab budget --write` writes what it measures.
"""


@dataclass
class Cost:
    """What a request of an operation takes."""

    counts: dict[str, float] = field(default_factory=dict)
    # By the names of `OF_FUNCTIONS`, and by function.
    functions: dict[str, dict[str, float]] = field(default_factory=lambda: {kind: {} for kind in OF_FUNCTIONS})


Costs = dict[str, Cost]


def read(checkout: Path) -> Costs:
    """What the file allows, by operation. Raises RuntimeError if the file is not whole."""
    if not (checkout / FILE).exists():
        raise RuntimeError(f"there is no {FILE}; `lab budget --write' writes it")
    table = tomllib.loads((checkout / FILE).read_text())
    names = table.get("operations", [])
    costs = {name: Cost() for name in names}
    for count in COUNTS:
        for name, figure in _row(table, "counts", count, names):
            costs[name].counts[count] = figure
    for kind in OF_FUNCTIONS:
        for function in table.get(kind, {}):
            for name, figure in _row(table, kind, function, names):
                costs[name].functions[kind][function] = figure
    return costs


def _row(table: Mapping[str, Mapping[str, list[float]]], section: str, key: str,
         names: list[str]) -> list[tuple[str, float]]:
    figures = table.get(section, {}).get(key, [])
    if len(figures) != len(names):
        raise RuntimeError(f"{FILE}: {section}, {key}: not a figure for each operation; `lab budget --write' writes it")
    return list(zip(names, figures, strict=True))


def text(costs: Costs) -> str:
    """The file for these costs."""
    names = list(costs)
    lines = [HEAD, "operations = [", *(f'    "{name}",' for name in names), "]", "", "[counts]"]
    lines += [f'"{count}" = {_figures([cost.counts[count] for cost in costs.values()], DIGITS.get(count, 2))}'
              for count in COUNTS]
    for kind in OF_FUNCTIONS:
        lines += ["", f'["{kind}"]']
        every = sorted({function for cost in costs.values() for function in cost.functions[kind]})
        for function in every:
            figures = [cost.functions[kind].get(function, 0.0) for cost in costs.values()]
            if max(figures) >= LEAST[kind]:
                lines.append(f"{json.dumps(function)} = {_figures(figures, DIGITS.get(kind, 2))}")
    return "\n".join(lines) + "\n"


def _figures(figures: list[float], digits: int) -> str:
    return "[" + ", ".join(f"{max(figure, 0.0):.{digits}f}" for figure in figures) + "]"


def limit(allowed: float) -> float:
    """What a count may be, by the figure of the file."""
    return allowed * TOLERANCE + SLACK


def held_to(name: str) -> list[str]:
    """The counts that an operation is held to: with many requests at a time, wake-ups depend on which ones meet."""
    return [count for count in COUNTS if count != WAKE_UPS or name.endswith(ALONE)]


def exceeded(name: str, allowed: Cost, found: Cost) -> list[str]:
    """The counts of an operation that are more than they may be."""
    return [count for count in held_to(name) if found.counts[count] > limit(allowed.counts[count])]


def lesser(one: Cost, other: Cost) -> Cost:
    """Of two measurements of an operation each count from that in which it is less, and the functions of the latter."""
    counts = {count: min(one.counts[count], other.counts[count]) for count in COUNTS}
    return Cost(counts, other.functions)


def grown(allowed: Cost, found: Cost, kind: str) -> list[tuple[str, float, float]]:
    """The functions that take more than the file says, with both figures, those that have grown most first."""
    before, now = allowed.functions[kind], found.functions[kind]
    rows = [(function, before.get(function, 0.0), figure) for function, figure in now.items()]
    more = [row for row in rows if row[2] > limit(row[1])]
    return sorted(more, key=lambda row: row[1] - row[2])


def errors(allowed: Costs, found: Costs) -> list[str]:
    """What is exceeded, and by which functions; empty if nothing is."""
    lines = []
    if list(allowed) != list(found):
        return [f"{FILE} is about other operations; `lab budget --write' writes it"]
    for name, cost in found.items():
        for count in exceeded(name, allowed[name], cost):
            was, now = allowed[name].counts[count], cost.counts[count]
            lines.append(f"{name}: {now:.2f} {count}, {now / was - 1:+.1%}: {was:.2f} in {FILE}" if was else
                         f"{name}: {now:.2f} {count}, none in {FILE}")
            kind = EXPLAINS[count]
            named = grown(allowed[name], cost, kind)
            lines += [f"    {kind}: {function}: {before:.2f}, now {after:.2f}"
                      for function, before, after in named[:NAMED]]
            if not named:
                lines.append(f"    {kind}: none of these modules has grown")
    return lines


def lower(allowed: Costs, found: Costs) -> list[str]:
    """The counts that are less than the file says by more than the tolerance."""
    return [f"{name}: {cost.counts[count]:.2f} {count}, {allowed[name].counts[count]:.2f} in {FILE}"
            for name, cost in found.items() if name in allowed for count in COUNTS
            if limit(cost.counts[count]) < allowed[name].counts[count]]


def table(allowed: Costs, found: Costs) -> str:
    """A table of the counts, each with what the file has."""
    lines = [f"{'per request':<24}" + "".join(f"{count:>22}" for count in COUNTS)]
    for name, cost in found.items():
        was = allowed.get(name)
        cells = [f"{cost.counts[count]:.2f}" + (f" ({was.counts[count]:.2f})" if was else "") for count in COUNTS]
        lines.append(f"{name:<24}" + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)
