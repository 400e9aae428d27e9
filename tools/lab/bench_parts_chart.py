# SPDX-License-Identifier: GPL-2.0
"""The chart of where a request's instructions go: for each job a panel, for each system a bar of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

from . import bar_panels
from .bench_report import Measured
from .bench_systems import without_rdma

SIZE = 4096
SOFT_ROCE = ("rdma_rxe", "ib_core", "ib_uverbs")
# The names and colours of a bar's parts, from below.
PARTS = {"the system's own modules": "#b7410e", "soft-RoCE and ib_core": "#1f4e79",
         "network, block layer, scheduler, fio": "#c3d0db"}


def parts_of(one: Measured) -> tuple[float, float, float]:
    """The instructions of a request, in the order of `PARTS`."""
    transport = sum(one.modules.get(name, 0.0) for name in SOFT_ROCE)
    # The last part is the rest of the instructions by the clock. The plugin's counts have no such figure: they include
    # the start of fio, which takes as many instructions of fio and of the kernel as the requests.
    return one.own_per_io, transport, one.instructions_per_io - transport - one.own_per_io


def chart(found: Sequence[Measured]) -> str:
    """An SVG of the first machine's requests of 4 KiB, for the systems that use RDMA."""
    small = [one for one in found if one.size == SIZE and one.modules and not without_rdma(one.system)]
    small = [one for one in small if one.machine == small[0].machine]
    systems = tuple(dict.fromkeys(one.system for one in small))
    panels = []
    for rw, depth in sorted({(one.rw, one.depth) for one in small}):
        here: Mapping[str, Measured] = {one.system: one for one in small if (one.rw, one.depth) == (rw, depth)}
        none = (0.0,) * len(PARTS)
        panels.append(bar_panels.Panel(
            f"{rw.removeprefix('rand')} 4 KiB, depth {depth}: instructions per request", systems,
            {"": [parts_of(here[system]) if system in here else none for system in systems]}))
    return bar_panels.chart("Where the instructions of a request go, both ends together", PARTS, panels,
                            {"": tuple(PARTS.values())}, 2)
