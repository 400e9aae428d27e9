# SPDX-License-Identifier: GPL-2.0
"""`lab bench --files`: a file of the server as a disk, and a loop device over the same file.

Most instructions of a request are those of the network, whatever the disk is. So both are compared by what
they take more than a disk like the one below the file system, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from .bench_report import Measured
from .bench_systems import FILES

SYSTEMS = tuple(FILES)
# How many times what a file takes a loop device takes at least.
AT_LEAST = 1.2


@dataclass(frozen=True)
class Row:
    """A job that all three have done."""

    job: str
    # Instructions for each request, in all.
    file: int
    loop: int
    block: int

    @property
    def added(self) -> float:
        """What the loop device takes more than the disk, over what the file takes more."""
        return (self.loop - self.block) / max(self.file - self.block, 1)


def rows(found: list[Measured]) -> list[Row]:
    """What is there of all three."""
    by_job: dict[str, dict[str, int]] = {}
    for one in found:
        job = by_job.setdefault(f"{one.rw} {one.size >> 10}K qd{one.depth}", {})
        job[one.system] = one.instructions_per_io
    return [Row(job, **taken) for job, taken in by_job.items() if len(taken) == len(SYSTEMS)]


def table(found: list[Measured]) -> str:
    """Instructions of a request, and the ratios of loop device and file."""
    lines = [f"{'job':<18}{'disk':>8}{'file':>8}{'loop':>8}{'loop/file':>11}{'of what is added':>18}"]
    lines += [f"{row.job:<18}{row.block:>8}{row.file:>8}{row.loop:>8}{row.loop / row.file:>11.2f}{row.added:>18.2f}"
              for row in rows(found)]
    return "\n".join(lines) + "\n"


def too_slow(found: list[Measured], jobs: int) -> list[str]:
    """A line for each job that a file does not do cheaply enough, and one if any was not done by all."""
    lines = [f"{row.job}: a loop device takes {row.added:.2f} times what a file does, not {AT_LEAST}"
             for row in rows(found) if row.added < AT_LEAST]
    if len(rows(found)) < jobs:
        lines.append("not all jobs were done by all")
    return lines
