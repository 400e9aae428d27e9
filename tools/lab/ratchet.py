# SPDX-License-Identifier: GPL-2.0
"""What the tree does not keep to yet, in ratchet.toml: figures that only go down.

A table for each rule, with a figure for each offender. More than the figure is an error,
and so is less, so that what became better stays so: the option `--lower` of the checks
writes the lower figures, and never a higher one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path("tools/lab/ratchet.toml")
HEAD = """# SPDX-License-Identifier: GPL-2.0
#
# What the tree does not keep to yet, by rule. Each figure only goes down:
# `PYTHONPATH=tools python3 -m lab layers --lower`, `... lab house --lower` and
# `... lab stack --lower` write what became better, and never more than is here.
"""


@dataclass(frozen=True)
class Found:
    """What a check found about one offender: the figure, and where it is."""

    figure: int
    where: list[str]


NOTHING = Found(0, [])


class Ratchet:
    """The figures."""

    def __init__(self, checkout: Path) -> None:
        self._path = checkout / FILE
        self._tables: dict[str, dict[str, int]] = {}
        if self._path.exists():
            self._tables = tomllib.loads(self._path.read_text())

    def compare(self, rule: str, found: Mapping[str, Found], lower: bool, keys: list[str] | None = None) -> list[str]:
        """Errors, if offenders have other figures than these; `keys` limits the comparison.

        With `lower`, figures that are too high are lowered instead.
        """
        table = self._tables.get(rule, {})
        errors = []
        for key in sorted({*found, *table} if keys is None else keys):
            now, allowed = found.get(key, NOTHING), table.get(key, 0)
            if now.figure > allowed:
                errors.append(f"{key}: {now.figure} {rule}, {allowed} allowed by {FILE}")
                errors += [f"  {line}" for line in now.where]
            elif now.figure < allowed and lower:
                table[key] = now.figure
                if not now.figure:
                    del table[key]
            elif now.figure < allowed:
                errors.append(f"{key}: {now.figure} {rule}, fewer than the {allowed} of {FILE}: lower it there")
        return errors

    def write(self) -> None:
        """Writes the figures."""
        lines = [HEAD]
        for rule, table in sorted(self._tables.items()):
            if not table:
                continue
            lines.append(f'["{rule}"]')
            lines += [f'"{key}" = {count}' for key, count in sorted(table.items())]
            lines.append("")
        self._path.write_text("\n".join(lines))
